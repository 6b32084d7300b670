// Tokens of every element by fixed tables, 32 rANS states in turn: doc/format.md section 11.
//
// Nothing adapts, so that no state waits for another and vectors can hold them; the states have 32
// bits and the words 16, other than those of rans.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "codec/token_table.hpp"
#include "kernel/kernels.hpp"

namespace wisp {

inline constexpr std::size_t kMaxTokenClasses = 8;

/// Keeps its buffers between blocks.
class TokenWriter {
  public:
    /// One table for each class; a class for each token.
    void append(std::span<const std::uint8_t> tokens, std::span<const std::uint8_t> classes,
                std::span<const TokenTable> tables, Bytes& out);

  private:
    std::vector<std::uint32_t> slices_;  // 256 of each class
    std::vector<std::uint16_t> words_;
};

class TokenReader {
  public:
    void set_tables(std::span<const TokenTable> tables);
    /// False: a state is missing or out of range, or words are not whole.
    bool open(std::span<const std::byte> stream);
    /// The next tokens; all but the last call take a multiple of kTokenStates.
    void take(std::size_t count, const std::uint8_t* classes, std::uint8_t* tokens);
    /// True when the stream ended exactly here, as its writer left it.
    bool finished() const;

  private:
    std::vector<std::uint32_t> slots_;
    TokenSource source_{};
    const std::byte* end_ = nullptr;
    bool ok_ = true;
};

}  // namespace wisp
