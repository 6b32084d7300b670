// How often each token of a dense block comes, in 1/4096, and how that is written: doc/format.md
// section 11.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"
#include "kernel/kernels.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct TokenTable {
    std::array<std::uint16_t, 256> frequency{};
    std::array<std::uint16_t, 256> start{};

    /// Fills `start` from `frequency`.
    void accumulate();
    /// From counts of which at least one is not zero; every counted token gets at least 1.
    static TokenTable from_counts(const std::array<std::uint32_t, 256>& counts);
};

void write_token_table(const TokenTable& table, Bytes& out);
Result<TokenTable> parse_token_table(ByteReader& in);

/// What coding so many of each takes, tables aside.
double entropy_bits(const std::array<std::uint32_t, 256>& counts);

}  // namespace wisp
