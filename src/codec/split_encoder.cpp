#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "codec/dense_encoder.hpp"
#include "codec/rans.hpp"
#include "codec/split_table.hpp"
#include "kernel/elements.hpp"

namespace wisp {
namespace {

template <class T>
std::uint8_t coded_byte(const std::byte* block, std::size_t index) {
    return static_cast<std::uint8_t>(rotate_sign_down(load_element<T>(block, index)) >>
                                     (sizeof(T) * 8 - 8));
}

template <class T>
std::array<std::uint64_t, 256> count_bytes(std::span<const std::byte> block) {
    std::array<std::uint64_t, 256> counts{};
    for (std::size_t i = 0; i < block.size() / sizeof(T); ++i) {
        ++counts[coded_byte<T>(block.data(), i)];
    }
    return counts;
}

double coded_bits(const std::array<std::uint64_t, 256>& counts, std::size_t total) {
    double bits = 0;
    for (const std::uint64_t count : counts) {
        if (count == 0) continue;
        const auto n = static_cast<double>(count);
        bits += n * std::log2(static_cast<double>(total) / n);
    }
    return bits;
}

/// The states and words of the coded bytes, in the order in which they are read.
template <class T>
Bytes code_bytes(std::span<const std::byte> block, const SplitTable& table) {
    std::array<std::uint64_t, kSplitStates> states;
    states.fill(kRansLow);
    std::vector<std::uint32_t> words(block.size() / sizeof(T) + 1);
    std::uint32_t* next = words.data();
    for (std::size_t i = block.size() / sizeof(T); i-- > 0;) {
        const std::uint8_t byte = coded_byte<T>(block.data(), i);
        rans_put(states[i % kSplitStates], next,
                 {table.start[byte], table.frequency[byte], kSplitBits});
    }
    Bytes stream;
    stream.reserve(static_cast<std::size_t>(next - words.data()) * 4 + sizeof(states));
    for (const std::uint64_t state : states) append_fixed(stream, state);
    append_words({words.data(), next}, stream);
    return stream;
}

template <class T>
void append_low_bytes(std::span<const std::byte> block, Bytes& out) {
    constexpr std::size_t kKept = sizeof(T) - 1;
    const std::size_t count = block.size() / sizeof(T);
    const std::size_t at = out.size();
    out.resize(at + count * kKept);
    if constexpr (kKept > 0) {
        for (std::size_t i = 0; i < count; ++i) {
            const T rotated = rotate_sign_down(load_element<T>(block.data(), i));
            std::memcpy(out.data() + at + i * kKept, &rotated, kKept);
        }
    }
}

}  // namespace

void encode_split(std::span<const std::byte> block, unsigned element_bytes, Bytes& out) {
    with_element_type(element_bytes, [&]<class T>(T) {
        const std::size_t count = block.size() / sizeof(T);
        const auto counts = count_bytes<T>(block);
        const double expected = coded_bits(counts, count) / 8 + 100;
        if (count == 0 || expected >= static_cast<double>(count)) return 0;
        const std::size_t start = out.size();
        const SplitTable table = SplitTable::from_counts(counts);
        write_split_table(table, out);
        const Bytes stream = code_bytes<T>(block, table);
        append_varint(out, stream.size());
        out.insert(out.end(), stream.begin(), stream.end());
        append_low_bytes<T>(block, out);
        if (out.size() - start >= block.size()) out.resize(start);
        return 0;
    });
}

}  // namespace wisp
