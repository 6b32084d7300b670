// The steps of a swift block: doc/format.md section 12.
//
// A step of training has a size of its own, so from some exponent on every change goes one place up
// or down, and its sign says all. Signs stand side by side, a bit each; how far the others go is
// coded, in contexts of the old exponent. So most changes cost a few vector instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "codec/rans.hpp"
#include "codec/rans_reader.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"

namespace wisp {

inline constexpr unsigned kMaxSingleFrom = 256;  // no exponent is as high

/// One per thread, for either direction: it keeps its buffers between blocks.
class SwiftSteps {
  public:
    /// Finds the steps between the old bits and the new ones. Answers from which exponent on all
    /// are of one.
    unsigned find(const BlockChanges& changes, const DtypeTraits& traits);
    /// The signs of what was found.
    void append_signs(Bytes& out) const;
    /// The lengths of those that may be longer than one.
    void put_lengths(RansWriter& rans);

    /// What the steps lead to. There is a sign for each of the old elements.
    Result<void> follow(RansReader rans, unsigned single_from, const std::byte* signs,
                        std::span<const std::byte> old_bits, const DtypeTraits& traits,
                        std::byte* new_bits);

  private:
    void reserve(std::size_t count, unsigned element_bytes);
    void list_coded(unsigned single_from);
    std::span<const std::uint32_t> coded() const { return {coded_.data(), coded_count_}; }
    std::byte* bytes_of_steps() { return std::as_writable_bytes(std::span(steps_)).data(); }

    std::size_t count_ = 0;
    unsigned element_bytes_ = 0;
    std::vector<std::uint64_t> steps_;  // zigzag, of the elements' width
    std::vector<std::uint8_t> capped_;  // the same, at most 255
    std::vector<std::uint8_t> exponents_;
    std::vector<std::uint32_t> coded_;  // those with a length, and room for more
    std::size_t coded_count_ = 0;
};

}  // namespace wisp
