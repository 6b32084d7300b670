// The vector kernels, compiled once per instruction set by Highway.
#include "kernel/vector.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/changed_masks_inl.hpp"
#include "kernel/elements.hpp"
#include "kernel/mixer_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace wisp::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

// One lane at a time has no byte shuffles; the reference is as fast.
Kernels vector_kernels() {
    return kReferenceKernels;
}

#else

/// Takes the exponents of elements as bytes.
template <class T>
class ExponentTaker {
    using D = hn::ScalableTag<T>;
    using D8 = hn::Rebind<std::uint8_t, D>;

  public:
    explicit ExponentTaker(const ExponentField& field)
        : shift_(static_cast<int>(field.shift)),
          mask_(hn::Set(D(), static_cast<T>(field.mask))),
          bias_(hn::Set(D(), static_cast<T>(field.bias))),
          largest_(hn::Set(D(), static_cast<T>(255))) {}

    HWY_INLINE hn::Vec<D8> bytes(hn::Vec<D> value) const {
        auto exponent = hn::And(hn::ShiftRightSame(value, shift_), mask_);
        if constexpr (sizeof(T) == 8) {
            exponent = hn::Min(hn::Sub(hn::Max(exponent, bias_), bias_), largest_);
        }
        if constexpr (sizeof(T) == 1) {
            return exponent;
        } else {
            return hn::TruncateTo(D8(), exponent);
        }
    }
    HWY_INLINE void take(hn::Vec<D> value, std::uint8_t* to) const {
        hn::StoreU(bytes(value), D8(), to);
    }

  private:
    int shift_;
    hn::Vec<D> mask_, bias_, largest_;
};

/// The bits of 64 elements that differ, lowest first.
template <class T>
HWY_INLINE std::uint64_t changed_mask(const std::byte* old_bits, const std::byte* new_bits) {
    const hn::ScalableTag<T> d;
    const std::size_t lanes = hn::Lanes(d);
    std::uint64_t mask = 0;
#if HWY_TARGET == HWY_AVX2
    if constexpr (sizeof(T) == 2) {
        const auto equal = [&](std::size_t i) HWY_ATTR {
            return hn::VecFromMask(d, hn::Eq(hn::LoadU(d, lanes_at<T>(old_bits) + i),
                                             hn::LoadU(d, lanes_at<T>(new_bits) + i)))
                .raw;
        };
        const auto part = [&](std::size_t i) HWY_ATTR {
            const __m256i bytes = _mm256_packs_epi16(equal(i), equal(i + lanes));
            const int same = _mm256_movemask_epi8(_mm256_permute4x64_epi64(bytes, 0xD8));
            return static_cast<std::uint64_t>(~static_cast<std::uint32_t>(same));
        };
        return part(0) | part(2 * lanes) << 32;
    }
#endif
    for (std::size_t i = 0; i < 64; i += lanes) {
        const auto differs = hn::Ne(hn::LoadU(d, lanes_at<T>(old_bits) + i),
                                    hn::LoadU(d, lanes_at<T>(new_bits) + i));
        // StoreMaskBits may write up to eight bytes and clears the unused bits of the last.
        std::uint8_t bits[8] = {};
        hn::StoreMaskBits(d, differs, bits);
        std::uint64_t part;
        std::memcpy(&part, bits, 8);
        mask |= part << i;
    }
    return mask;
}

template <class T>
HWY_INLINE void prefetch_ahead(const std::byte* old_bits, const std::byte* new_bits) {
    for (std::size_t i = 0; i < 64 * sizeof(T); i += 64) {
        __builtin_prefetch(old_bits + kAheadBytes + i);
        __builtin_prefetch(new_bits + kAheadBytes + i);
    }
}

template <class T, bool kMix>
HWY_INLINE std::size_t scan_of(const std::byte* old_bits, const std::byte* new_bits,
                               std::size_t count, std::uint32_t* positions,
                               const ScanDigest& digest) {
    const hn::ScalableTag<T> d;
    const hn::Repartition<std::uint64_t, decltype(d)> d64;
    constexpr std::size_t kChunkBytes = 64 * sizeof(T);
    const TensorSeed unseeded;
    Mixer mixer(kMix ? *digest.seed : unseeded, digest.first_word);
    std::size_t found = 0;
    std::size_t first = 0;
    ChangedMasks masks;
    for (; first + 64 <= count; first += 64, old_bits += kChunkBytes, new_bits += kChunkBytes) {
        prefetch_ahead<T>(old_bits, new_bits);
        if constexpr (kMix) {
            for (std::size_t i = 0; i < 64; i += hn::Lanes(d)) {
                mixer.add(hn::BitCast(d64, hn::LoadU(d, lanes_at<T>(old_bits) + i)));
            }
        }
        masks.add(changed_mask<T>(old_bits, new_bits), static_cast<std::uint32_t>(first));
        if (masks.full()) found += masks.list(positions + found);
    }
    found += masks.list(positions + found);
    if constexpr (kMix) *digest.digest += mixer.sum();
    // What is left is less than 64 elements.
    const ScanDigest rest = {digest.seed, digest.first_word + first * sizeof(T) / 8, digest.digest};
    const std::size_t found_in_rest = kReferenceKernels.scan(old_bits, new_bits, count - first,
                                                             sizeof(T), positions + found, rest);
    for (std::size_t i = 0; i < found_in_rest; ++i) {
        positions[found + i] += static_cast<std::uint32_t>(first);
    }
    return found + found_in_rest;
}

template <class T>
HWY_INLINE std::size_t scan_as(const std::byte* old_bits, const std::byte* new_bits,
                               std::size_t count, std::uint32_t* positions,
                               const ScanDigest& digest) {
    return digest.seed != nullptr ? scan_of<T, true>(old_bits, new_bits, count, positions, digest)
                                  : scan_of<T, false>(old_bits, new_bits, count, positions, digest);
}

std::size_t scan(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                 unsigned element_bytes, std::uint32_t* positions, const ScanDigest& digest) {
    switch (element_bytes) {
        case 1: return scan_as<std::uint8_t>(old_bits, new_bits, count, positions, digest);
        case 2: return scan_as<std::uint16_t>(old_bits, new_bits, count, positions, digest);
        case 4: return scan_as<std::uint32_t>(old_bits, new_bits, count, positions, digest);
        default: return scan_as<std::uint64_t>(old_bits, new_bits, count, positions, digest);
    }
}

/// The weights of 64 exponents: the sum of each eight stored, the total returned.
class Weigher {
    using D8 = hn::ScalableTag<std::uint8_t>;
    using D64 = hn::Repartition<std::uint64_t, D8>;
    using D32 = hn::Rebind<std::uint32_t, D64>;

  public:
    Weigher(const ClassWindow& window, const WeightTable& weights)
        : low_bytes_(hn::LoadDup128(D8(), weights.low_bytes.data())),
          high_bytes_(hn::LoadDup128(D8(), weights.high_bytes.data())),
          low_(hn::Set(D8(), window.low)),
          top_(hn::Set(D8(), window.top)) {}

    HWY_INLINE std::uint32_t weigh(const std::uint8_t* exponents, std::uint32_t* sums) const {
        auto total = hn::Zero(D64());
        for (std::size_t i = 0; i < 64; i += hn::Lanes(D8())) {
            add(hn::LoadU(D8(), exponents + i), sums + i / 8, total);
        }
        return reduce(total);
    }
    HWY_INLINE void add(hn::Vec<D8> exponents, std::uint32_t* sums, hn::Vec<D64>& total) const {
        const auto index = hn::Min(hn::SaturatedSub(exponents, low_), top_);
        const auto low = hn::SumsOf8(hn::TableLookupBytes(low_bytes_, index));
        const auto high = hn::SumsOf8(hn::TableLookupBytes(high_bytes_, index));
        const auto sum = hn::Add(low, hn::ShiftLeft<8>(high));
        hn::StoreU(hn::TruncateTo(D32(), sum), D32(), sums);
        total = hn::Add(total, sum);
    }
    static HWY_INLINE std::uint32_t reduce(hn::Vec<D64> total) {
        return static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(D64(), total)));
    }

  private:
    hn::Vec<D8> low_bytes_, high_bytes_, low_, top_;
};

template <class T, bool kMix>
HWY_INLINE void scan_weighted_of(const std::byte* old_bits, const std::byte* new_bits,
                                 std::size_t count, const WeightedScan& scan) {
    const hn::ScalableTag<T> d;
    const hn::ScalableTag<std::uint8_t> d8;
    const hn::Repartition<std::uint64_t, decltype(d)> d64;
    const TensorSeed unseeded;
    Mixer mixer(kMix ? *scan.digest.seed : unseeded, scan.digest.first_word);
    const ExponentTaker<T> taker(scan.field);
    const Weigher weigher(scan.window, scan.weights);
    HWY_ALIGN std::uint8_t exponents[64];
    HWY_ALIGN std::uint32_t sums[8];
    std::uint64_t start = 0;
    std::size_t first = 0;
    for (; first + 64 <= count; first += 64) {
        const std::byte* const old_group = old_bits + first * sizeof(T);
        const std::byte* const new_group = new_bits + first * sizeof(T);
        prefetch_ahead<T>(old_group, new_group);
        auto differing = hn::Zero(d);
        auto total = hn::Zero(hn::Repartition<std::uint64_t, decltype(d8)>());
        const auto look = [&](std::size_t i) HWY_ATTR {
            const auto before = hn::LoadU(d, lanes_at<T>(old_group) + i);
            differing =
                hn::Or(differing, hn::Xor(before, hn::LoadU(d, lanes_at<T>(new_group) + i)));
            if constexpr (kMix) mixer.add(hn::BitCast(d64, before));
            return before;
        };
        if constexpr (sizeof(T) == 2) {
            // The common width stays in registers: bytes stored and read back at once would wait.
            for (std::size_t i = 0; i < 64; i += hn::Lanes(d8)) {
                const auto low = taker.bytes(look(i));
                const auto high = taker.bytes(look(i + hn::Lanes(d)));
                const auto both = hn::Combine(d8, high, low);
                hn::Store(both, d8, exponents + i);
                weigher.add(both, sums + i / 8, total);
            }
        } else {
            for (std::size_t i = 0; i < 64; i += hn::Lanes(d)) taker.take(look(i), exponents + i);
            for (std::size_t i = 0; i < 64; i += hn::Lanes(d8)) {
                weigher.add(hn::Load(d8, exponents + i), sums + i / 8, total);
            }
        }
        if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Eq(differing, hn::Zero(d))))) {
            scan.take(scan.taker,
                      {first, changed_mask<T>(old_group, new_group), start, exponents, sums});
        }
        start += Weigher::reduce(total);
    }
    if constexpr (kMix) {
        *scan.digest.digest += mixer.sum();
        *scan.digest.digest += kReferenceKernels.mix_bytes(
            old_bits + first * sizeof(T), (count - first) * sizeof(T), *scan.digest.seed,
            scan.digest.first_word + first * sizeof(T) / 8);
    }
    scan_weighted_from(first, start, old_bits, new_bits, count, sizeof(T), scan);
}

template <class T>
HWY_INLINE void scan_weighted_as(const std::byte* old_bits, const std::byte* new_bits,
                                 std::size_t count, const WeightedScan& scan) {
    if (scan.digest.seed != nullptr) {
        scan_weighted_of<T, true>(old_bits, new_bits, count, scan);
    } else {
        scan_weighted_of<T, false>(old_bits, new_bits, count, scan);
    }
}

void scan_weighted(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                   unsigned element_bytes, const WeightedScan& scan) {
    switch (element_bytes) {
        case 1: return scan_weighted_as<std::uint8_t>(old_bits, new_bits, count, scan);
        case 2: return scan_weighted_as<std::uint16_t>(old_bits, new_bits, count, scan);
        case 4: return scan_weighted_as<std::uint32_t>(old_bits, new_bits, count, scan);
        default: return scan_weighted_as<std::uint64_t>(old_bits, new_bits, count, scan);
    }
}

StateDigest mix_bytes(const std::byte* bytes, std::size_t size_bytes, const TensorSeed& seed,
                      std::uint64_t first_word) {
    const hn::ScalableTag<std::uint64_t> d;
    const std::size_t step_bytes = hn::Lanes(d) * 8;
    Mixer mixer(seed, first_word);
    std::size_t at = 0;
    for (; at + step_bytes <= size_bytes; at += step_bytes) {
        mixer.add(hn::LoadU(d, lanes_at<std::uint64_t>(bytes + at)));
    }
    return mixer.sum() +
           kReferenceKernels.mix_bytes(bytes + at, size_bytes - at, seed, first_word + at / 8);
}

template <class T>
HWY_INLINE std::size_t take_exponents_of(const std::byte* bits, std::size_t count,
                                         const ExponentField& field, std::uint8_t* exponents) {
    const hn::ScalableTag<T> d;
    const ExponentTaker<T> taker(field);
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
        __builtin_prefetch(bits + i * sizeof(T) + kAheadBytes);
        taker.take(hn::LoadU(d, lanes_at<T>(bits) + i), exponents + i);
    }
    return i;
}

void take_exponents(const std::byte* bits, std::size_t count, unsigned element_bytes,
                    const ExponentField& field, std::uint8_t* exponents) {
    std::size_t done = 0;
    switch (element_bytes) {
        case 1: done = take_exponents_of<std::uint8_t>(bits, count, field, exponents); break;
        case 2: done = take_exponents_of<std::uint16_t>(bits, count, field, exponents); break;
        case 4: done = take_exponents_of<std::uint32_t>(bits, count, field, exponents); break;
        default: done = take_exponents_of<std::uint64_t>(bits, count, field, exponents); break;
    }
    kReferenceKernels.take_exponents(bits + done * element_bytes, count - done, element_bytes,
                                     field, exponents + done);
}

void weigh(const std::uint8_t* exponents, std::size_t count, const ClassWindow& window,
           const WeightTable& weights, std::uint32_t* sums, std::uint32_t* totals) {
    const Weigher weigher(window, weights);
    for (std::size_t first = 0; first < count; first += 64) {
        totals[first / 64] = weigher.weigh(exponents + first, sums + first / 8);
    }
}

void round_to_bf16(const std::byte* from, std::size_t count, std::byte* to) {
    const hn::ScalableTag<std::int32_t> d;
    const hn::Rebind<std::uint16_t, decltype(d)> half;
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
        __builtin_prefetch(from + i * sizeof(float) + kAheadBytes);
        const auto bits = hn::LoadU(d, lanes_at<std::int32_t>(from) + i);
        const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
        const auto sum = hn::Add(hn::Add(bits, odd), hn::Set(d, 0x7FFF));
        const auto rounded = hn::And(hn::ShiftRight<16>(sum), hn::Set(d, 0xFFFF));
        const auto size = hn::And(bits, hn::Set(d, kF32Magnitude));
        const auto is_nan = hn::Gt(size, hn::Set(d, kF32Infinity));
        hn::StoreU(hn::DemoteTo(half, hn::IfThenElse(is_nan, hn::Set(d, kBf16Nan), rounded)), half,
                   reinterpret_cast<std::uint16_t*>(to) + i);
    }
    kReferenceKernels.round_to_bf16(from + i * 4, count - i, to + i * 2);
}

Kernels vector_kernels() {
    const std::string_view name = hwy::TargetName(HWY_TARGET);
    Kernels table = kReferenceKernels;
    table.name = name;
    table.scan = scan;
    table.scan_weighted = scan_weighted;
    table.mix_bytes = mix_bytes;
    table.take_exponents = take_exponents;
    table.weigh = weigh;
    table.round_to_bf16 = round_to_bf16;
    return table;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace wisp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_ONCE
namespace wisp {

HWY_EXPORT(vector_kernels);

std::vector<Kernels> vector_kernels_of_this_machine() {
    std::vector<Kernels> tables;
    const std::int64_t supported = hwy::SupportedTargets();
    for (std::int64_t bits = supported & HWY_TARGETS; bits != 0; bits &= bits - 1) {
        if ((bits & -bits) == HWY_SCALAR) continue;
        hwy::SetSupportedTargetsForTest(bits & -bits);
        tables.push_back(HWY_DYNAMIC_DISPATCH(vector_kernels)());
        set_dense_kernels(tables.back());
        set_token_kernels(tables.back());
    }
    hwy::SetSupportedTargetsForTest(0);
    return tables;
}

}  // namespace wisp
#endif
