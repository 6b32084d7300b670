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

std::size_t scan(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                 unsigned element_bytes, std::uint32_t* positions, const ScanOptions& options) {
    if (options.seed != nullptr) {
        *options.digest +=
            mix_bytes(old_bits, count * element_bytes, *options.seed, options.first_word);
    }
    if (options.exponents != nullptr) {
        take_exponents(old_bits, count, element_bytes, options.field, options.exponents);
    }
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

}  // namespace

const Kernels kReferenceKernels = {"reference", scan, mix_bytes, take_exponents, weigh};

}  // namespace wisp
