#include "codec/split_table.hpp"

#include <algorithm>

namespace wisp {
namespace {

constexpr std::uint32_t kTotal = 1U << kSplitBits;

}  // namespace

void SplitTable::accumulate() {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 256; ++i) {
        start[i] = static_cast<std::uint16_t>(sum);
        sum += frequency[i];
    }
}

SplitTable SplitTable::from_counts(const std::array<std::uint64_t, 256>& counts) {
    SplitTable table;
    std::uint64_t total = 0;
    for (const std::uint64_t count : counts) total += count;
    std::int64_t left = kTotal;
    for (std::size_t i = 0; i < 256; ++i) {
        if (counts[i] == 0) continue;
        const std::uint64_t share = counts[i] * kTotal / total;
        table.frequency[i] = static_cast<std::uint16_t>(std::max<std::uint64_t>(share, 1));
        left -= table.frequency[i];
    }
    // Rounding is made up for with the most frequent bytes, where a unit matters least.
    while (left != 0) {
        auto largest = std::ranges::max_element(table.frequency);
        const std::int64_t change = left > 0 ? left : std::max<std::int64_t>(left, -(*largest / 2));
        *largest = static_cast<std::uint16_t>(*largest + change);
        left -= change;
    }
    table.accumulate();
    return table;
}

void write_split_table(const SplitTable& table, Bytes& out) {
    for (std::size_t byte = 0; byte < 256; byte += 8) {
        unsigned present = 0;
        for (unsigned bit = 0; bit < 8; ++bit) {
            present |= (table.frequency[byte + bit] != 0 ? 1U : 0U) << bit;
        }
        out.push_back(static_cast<std::byte>(present));
    }
    for (const std::uint16_t frequency : table.frequency) {
        if (frequency != 0) append_varint(out, frequency);
    }
}

Result<SplitTable> parse_split_table(ByteReader& in) {
    const auto present = in.take(32);
    SplitTable table;
    std::uint64_t total = 0;
    for (std::size_t i = 0; in.ok() && i < 256; ++i) {
        if ((static_cast<unsigned>(present[i / 8]) >> (i % 8) & 1) == 0) continue;
        const std::uint64_t frequency = in.varint();
        if (frequency == 0 || frequency > kTotal) {
            return fail(ErrorKind::kCorrupt, "split block: a frequency is out of range");
        }
        table.frequency[i] = static_cast<std::uint16_t>(frequency);
        total += frequency;
    }
    if (!in.ok() || total != kTotal) {
        return fail(ErrorKind::kCorrupt, "split block: frequencies do not sum to 4096");
    }
    table.accumulate();
    return table;
}

}  // namespace wisp
