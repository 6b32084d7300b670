#include "codec/token_table.hpp"

#include <algorithm>
#include <cmath>

namespace wisp {
namespace {

constexpr std::uint32_t kTokenTotal = 1U << kTokenBits;

std::unexpected<Error> corrupt_table(const char* what) {
    return fail(ErrorKind::kCorrupt, std::string("frequencies of a block: ") + what);
}

}  // namespace

void TokenTable::accumulate() {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 256; ++i) {
        start[i] = static_cast<std::uint16_t>(sum);
        sum += frequency[i];
    }
}

TokenTable TokenTable::from_counts(const std::array<std::uint32_t, 256>& counts) {
    TokenTable table;
    std::uint64_t total = 0;
    for (const std::uint32_t count : counts) total += count;
    std::int64_t left = kTokenTotal;
    for (std::size_t i = 0; i < 256; ++i) {
        if (counts[i] == 0) continue;
        const std::uint64_t share = (std::uint64_t{counts[i]} * kTokenTotal + total / 2) / total;
        table.frequency[i] = static_cast<std::uint16_t>(std::max<std::uint64_t>(share, 1));
        left -= table.frequency[i];
    }
    // Rounding is made up for with the most frequent tokens, where a unit matters least.
    while (left != 0) {
        auto largest = std::ranges::max_element(table.frequency);
        const std::int64_t change = left > 0 ? left : std::max<std::int64_t>(left, -(*largest / 2));
        *largest = static_cast<std::uint16_t>(*largest + change);
        left -= change;
    }
    table.accumulate();
    return table;
}

void write_token_table(const TokenTable& table, Bytes& out) {
    std::size_t presence_bytes = 32;
    while (
        table.frequency[8 * presence_bytes - 1] == 0 &&
        std::all_of(table.frequency.begin() + static_cast<std::ptrdiff_t>(8 * presence_bytes - 8),
                    table.frequency.begin() + static_cast<std::ptrdiff_t>(8 * presence_bytes),
                    [](std::uint16_t frequency) { return frequency == 0; })) {
        --presence_bytes;
    }
    out.push_back(static_cast<std::byte>(presence_bytes));
    for (std::size_t token = 0; token < 8 * presence_bytes; token += 8) {
        unsigned present = 0;
        for (unsigned bit = 0; bit < 8; ++bit) {
            present |= (table.frequency[token + bit] != 0 ? 1U : 0U) << bit;
        }
        out.push_back(static_cast<std::byte>(present));
    }
    for (const std::uint16_t frequency : table.frequency) {
        if (frequency != 0) append_varint(out, frequency);
    }
}

Result<TokenTable> parse_token_table(ByteReader& in) {
    const std::size_t presence_bytes = in.fixed<std::uint8_t>();
    if (presence_bytes > 32) return corrupt_table("more than 256 tokens");
    const auto present = in.take(presence_bytes);
    TokenTable table;
    std::uint64_t total = 0;
    for (std::size_t i = 0; in.ok() && i < 8 * presence_bytes; ++i) {
        if ((static_cast<unsigned>(present[i / 8]) >> (i % 8) & 1) == 0) continue;
        const std::uint64_t frequency = in.varint();
        if (frequency == 0 || frequency > kTokenTotal) {
            return corrupt_table("one is out of range");
        }
        table.frequency[i] = static_cast<std::uint16_t>(frequency);
        total += frequency;
    }
    if (!in.ok() || total != kTokenTotal) return corrupt_table("they do not sum to 4096");
    table.accumulate();
    return table;
}

double entropy_bits(const std::array<std::uint32_t, 256>& counts) {
    double total = 0;
    double bits = 0;
    for (const std::uint32_t count : counts) {
        if (count == 0) continue;
        total += count;
        bits -= count * std::log2(count);
    }
    return total == 0 ? 0 : bits + total * std::log2(total);
}

}  // namespace wisp
