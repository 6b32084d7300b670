// Blocks of every kind of content, and changed copies of them, from a seed.
#pragma once

#include <array>
#include <cstdint>
#include <random>

#include "base/bytes.hpp"
#include "kernel/kernels.hpp"
#include "kernel/scatter.hpp"
#include "wisp/schema.hpp"

namespace wisp::testing {

using Rng = std::mt19937_64;

inline const DtypeTraits& kBf16 = traits_of(Dtype::kBf16);

enum class Content { kRandom, kSignedZeros, kNans, kInfinities, kDenormals, kAllEqual, kWeights };
inline constexpr std::array kAllContents = {
    Content::kRandom,    Content::kSignedZeros, Content::kNans,   Content::kInfinities,
    Content::kDenormals, Content::kAllEqual,    Content::kWeights};

inline std::uint64_t low_mask(unsigned bits) {
    return bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

inline std::uint64_t random_element(const DtypeTraits& traits, Content content, Rng& rng) {
    const unsigned width = traits.element_bytes * 8;
    const std::uint64_t random = rng() & low_mask(width);
    const std::uint64_t sign = random & (std::uint64_t{1} << (width - 1));
    const std::uint64_t exponents = low_mask(traits.exponent_bits) << traits.exponent_shift;
    const std::uint64_t mantissa = random & low_mask(traits.exponent_shift);
    switch (content) {
        case Content::kRandom: return random;
        case Content::kSignedZeros: return sign;
        case Content::kNans: return sign | exponents | mantissa | 1;
        case Content::kInfinities: return sign | exponents;
        case Content::kDenormals: return sign | mantissa;
        case Content::kAllEqual: return 0x3F803F803F803F80 & low_mask(width);
        case Content::kWeights: break;
    }
    if (traits.exponent_bits == 0) return random >> (width - width / 2) & low_mask(width);
    // Magnitudes halve in number with every binade below the largest, as trained weights do.
    const auto below = static_cast<std::uint64_t>(__builtin_ctzll(rng() | (1ULL << 40)));
    const std::uint64_t highest = low_mask(traits.exponent_bits) / 2;
    const std::uint64_t exponent = highest > below ? highest - below : 0;
    return sign | exponent << traits.exponent_shift | mantissa;
}

inline void store_element(Bytes& block, const DtypeTraits& traits, std::size_t index,
                          std::uint64_t bits) {
    std::memcpy(block.data() + index * traits.element_bytes, &bits, traits.element_bytes);
}

inline std::uint64_t element_of(const Bytes& block, const DtypeTraits& traits, std::size_t index) {
    return with_element_type(traits.element_bytes, [&]<class T>(T) -> std::uint64_t {
        return load_element<T>(block.data(), index);
    });
}

inline Bytes random_block(const DtypeTraits& traits, Content content, std::size_t count, Rng& rng) {
    Bytes block(count * traits.element_bytes);
    for (std::size_t i = 0; i < count; ++i) {
        store_element(block, traits, i, random_element(traits, content, rng));
    }
    return block;
}

enum class Change { kUlp, kRandomBits, kSpecials };
inline constexpr std::array kAllChanges = {Change::kUlp, Change::kRandomBits, Change::kSpecials};

inline std::uint64_t changed_element(std::uint64_t bits, const DtypeTraits& traits, Change change,
                                     Rng& rng) {
    switch (change) {
        case Change::kUlp: return (rng() & 1) != 0 ? bits + 1 : bits - 1;
        case Change::kRandomBits: return rng();
        case Change::kSpecials: break;
    }
    constexpr std::array kSpecial = {Content::kSignedZeros, Content::kNans, Content::kInfinities};
    return random_element(traits, kSpecial[rng() % kSpecial.size()], rng);
}

/// `share` 0 changes one element, 1 all of them.
inline Bytes changed_copy(const Bytes& block, const DtypeTraits& traits, double share,
                          Change change, Rng& rng) {
    Bytes copy = block;
    const std::size_t count = block.size() / traits.element_bytes;
    if (count == 0) return copy;
    const std::size_t sure = rng() % count;
    // Not the library's distribution: it takes two logarithms for each number where nothing is
    // optimised, which was half of what many tests did under sanitizers.
    const auto uniform = [&rng] { return static_cast<double>(rng() >> 11) * 0x1p-53; };
    for (std::size_t i = 0; i < count; ++i) {
        if (i != sure && uniform() >= share) continue;
        const std::uint64_t bits = element_of(block, traits, i);
        store_element(copy, traits, i, changed_element(bits, traits, change, rng));
    }
    return copy;
}

/// Fills in the bits at `changes.positions` before and after.
inline void gather_bits(const std::byte* old_block, const std::byte* new_block,
                        BlockChanges& changes) {
    changes.old_bits.resize(changes.count() * changes.element_bytes);
    changes.new_bits.resize(changes.count() * changes.element_bytes);
    gather(old_block, changes.positions, changes.element_bytes, changes.old_bits.data());
    gather(new_block, changes.positions, changes.element_bytes, changes.new_bits.data());
}

/// What differs, as the plain kernel sees it.
inline BlockChanges changes_between(const Bytes& old_block, const Bytes& new_block,
                                    const DtypeTraits& traits) {
    BlockChanges changes;
    changes.element_bytes = traits.element_bytes;
    changes.positions.resize(old_block.size() / traits.element_bytes);
    changes.positions.resize(kReferenceKernels.scan(old_block.data(), new_block.data(),
                                                    changes.positions.size(), traits.element_bytes,
                                                    changes.positions.data(), {}));
    gather_bits(old_block.data(), new_block.data(), changes);
    return changes;
}

inline std::string dtype_name(Dtype dtype) {
    return std::string(traits_of(dtype).name);
}

}  // namespace wisp::testing
