#include <cstring>

#include "kernel/elements.hpp"
#include "kernel/kernels.hpp"

namespace wisp {
namespace {

StateDigest mix_bytes(const std::byte* bytes, std::size_t size_bytes, const TensorSeed& seed,
                      std::uint64_t first_word) {
    StateDigest digest;
    for (std::size_t at = 0; at < size_bytes; at += 8) {
        digest += mix_word(seed, first_word + at / 8, load_word(bytes, at, size_bytes));
    }
    return digest;
}

void take_exponents(const std::byte* bits, std::size_t count, unsigned element_bytes,
                    const ExponentField& field, std::uint8_t* exponents) {
    with_element_type(element_bytes, [&]<class T>(T) {
        for (std::size_t i = 0; i < count; ++i) {
            exponents[i] = field.of(load_element<T>(bits, i));
        }
        return 0;
    });
}

void mix_old(const std::byte* old_bits, std::size_t size_bytes, const ScanDigest& digest) {
    if (digest.seed == nullptr) return;
    *digest.digest += mix_bytes(old_bits, size_bytes, *digest.seed, digest.first_word);
}

std::size_t scan(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                 unsigned element_bytes, std::uint32_t* positions, const ScanDigest& digest) {
    mix_old(old_bits, count * element_bytes, digest);
    return with_element_type(element_bytes, [&]<class T>(T) {
        std::size_t found = 0;
        for (std::size_t i = 0; i < count; ++i) {
            if (load_element<T>(old_bits, i) != load_element<T>(new_bits, i)) {
                positions[found++] = static_cast<std::uint32_t>(i);
            }
        }
        return found;
    });
}

void weigh(const std::uint8_t* exponents, std::size_t count, const ClassWindow& window,
           const WeightTable& weights, std::uint32_t* sums, std::uint32_t* totals) {
    for (std::size_t i = 0; i < count; ++i) {
        if (i % 64 == 0) totals[i / 64] = 0;
        if (i % 8 == 0) sums[i / 8] = 0;
        sums[i / 8] += weights[window.class_of(exponents[i])];
        totals[i / 64] += weights[window.class_of(exponents[i])];
    }
}

void scan_weighted(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                   unsigned element_bytes, const WeightedScan& scan) {
    mix_old(old_bits, count * element_bytes, scan.digest);
    scan_weighted_from(0, 0, old_bits, new_bits, count, element_bytes, scan);
}

void round_to_bf16(const std::byte* from, std::size_t count, std::byte* to) {
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = load_element<std::uint32_t>(from, i);
        const bool is_nan = (bits & std::uint32_t{kF32Magnitude}) > std::uint32_t{kF32Infinity};
        const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
        const auto half = static_cast<std::uint16_t>(is_nan ? kBf16Nan : rounded);
        std::memcpy(to + i * 2, &half, 2);
    }
}

}  // namespace

void scan_weighted_from(std::size_t first, std::uint64_t start, const std::byte* old_bits,
                        const std::byte* new_bits, std::size_t count, unsigned element_bytes,
                        const WeightedScan& scan) {
    for (; first < count; first += 64) {
        const std::size_t size = std::min<std::size_t>(64, count - first);
        std::uint8_t exponents[64] = {};
        take_exponents(old_bits + first * element_bytes, size, element_bytes, scan.field,
                       exponents);
        std::uint32_t sums[8];
        std::uint32_t total = 0;
        weigh(exponents, 64, scan.window, scan.weights, sums, &total);
        std::uint64_t mask = 0;
        for (std::size_t i = 0; i < size; ++i) {
            const std::size_t at = (first + i) * element_bytes;
            const bool changed = std::memcmp(old_bits + at, new_bits + at, element_bytes) != 0;
            mask |= std::uint64_t{changed ? 1U : 0U} << i;
        }
        if (mask != 0) scan.take(scan.taker, {first, mask, start, exponents, sums});
        start += total;
    }
}

const Kernels kReferenceKernels = {"reference",    scan,  scan_weighted, mix_bytes,
                                   take_exponents, weigh, round_to_bf16};

}  // namespace wisp
