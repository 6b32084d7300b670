#include <cstring>

#include "kernel/elements.hpp"
#include "kernel/kernels.hpp"

namespace wisp {
namespace {

template <class T>
std::size_t find_changes_of(const std::byte* old_bits, const std::byte* new_bits,
                            std::size_t count, std::uint32_t* positions) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (load_element<T>(old_bits, i) != load_element<T>(new_bits, i)) {
            positions[found++] = static_cast<std::uint32_t>(i);
        }
    }
    return found;
}

std::size_t find_changes(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                         unsigned element_bytes, std::uint32_t* positions) {
    return with_element_type(element_bytes, [&]<class T>(T) {
        return find_changes_of<T>(old_bits, new_bits, count, positions);
    });
}

StateDigest mix_bytes(const std::byte* bytes, std::size_t size_bytes, const TensorSeed& seed,
                      std::uint64_t first_word) {
    StateDigest digest;
    for (std::size_t at = 0; at < size_bytes; at += 8) {
        digest += mix_word(seed, first_word + at / 8, load_word(bytes, at, size_bytes));
    }
    return digest;
}

std::size_t find_changes_and_mix(const std::byte* old_bits, const std::byte* new_bits,
                                 std::size_t count, unsigned element_bytes,
                                 std::uint32_t* positions, const TensorSeed& seed,
                                 std::uint64_t first_word, StateDigest& digest) {
    digest += mix_bytes(old_bits, count * element_bytes, seed, first_word);
    return find_changes(old_bits, new_bits, count, element_bytes, positions);
}

void weigh(const std::byte* bits, std::size_t count, unsigned element_bytes,
           const ClassWindow& window, const WeightTable& weights, std::uint32_t* sums) {
    with_element_type(element_bytes, [&]<class T>(T) {
        for (std::size_t first = 0; first < count; first += kGroupElements) {
            const std::size_t end = std::min(first + kGroupElements, count);
            std::uint32_t sum = 0;
            for (std::size_t i = first; i < end; ++i) {
                sum += weights[window.class_of(load_element<T>(bits, i))];
            }
            sums[first / kGroupElements] = sum;
        }
        return 0;
    });
}

}  // namespace

const Kernels kReferenceKernels = {"reference", find_changes, find_changes_and_mix, mix_bytes,
                                   weigh};

}  // namespace wisp
