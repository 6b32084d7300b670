// The vector kernels that weigh elements by their exponents, compiled once per instruction set.
#include "kernel/vector.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/vector_weights.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <array>
#include <bit>

#include "kernel/changed_masks_inl.hpp"
#include "kernel/elements.hpp"
#include "kernel/mixer_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace wisp::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void weight_kernels(Kernels&) {}

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
    /// Of two vectors of elements of two bytes, in one.
    HWY_INLINE hn::Vec<hn::ScalableTag<std::uint8_t>> bytes_of_both(hn::Vec<D> low,
                                                                    hn::Vec<D> high) const {
#if HWY_TARGET == HWY_AVX2
        const auto exponent = [&](hn::Vec<D> value) HWY_ATTR {
            return hn::And(hn::ShiftRightSame(value, shift_), mask_).raw;
        };
        const __m256i packed = _mm256_packus_epi16(exponent(low), exponent(high));
        return {_mm256_permute4x64_epi64(packed, 0xD8)};
#else
        return hn::Combine(hn::ScalableTag<std::uint8_t>(), bytes(high), bytes(low));
#endif
    }

  private:
    int shift_;
    hn::Vec<D> mask_, bias_, largest_;
};

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

    using Total = hn::Vec<D64>;  // the sum of its lanes

    HWY_INLINE std::uint32_t weigh(const std::uint8_t* exponents, std::uint32_t* sums) const {
        Total total = hn::Zero(D64());
        for (std::size_t i = 0; i < 64; i += hn::Lanes(D8())) {
            const Total sum = sums_of(hn::LoadU(D8(), exponents + i));
            hn::StoreU(hn::TruncateTo(D32(), sum), D32(), sums + i / 8);
            total = hn::Add(total, sum);
        }
        return static_cast<std::uint32_t>(reduce(total));
    }
    /// The weight of each eight exponents.
    HWY_INLINE Total sums_of(hn::Vec<D8> exponents) const {
        return sums_where(hn::Set(D8(), 255), exponents);
    }
    /// Of the first so many of 64, added to a total.
    HWY_INLINE Total sum_of_first(std::size_t count, const std::uint8_t* exponents,
                                  Total total) const {
        for (std::size_t i = 0; i < 64; i += hn::Lanes(D8())) {
            const auto kept = hn::LoadU(D8(), kFirstBytes.data() + 64 - count + i);
            total = hn::Add(total, sums_where(kept, hn::Load(D8(), exponents + i)));
        }
        return total;
    }
    /// GCC 12 reduces 64-bit lanes as signed numbers; these sums are far below that.
    static HWY_INLINE std::uint64_t reduce(Total total) {
        return hn::GetLane(hn::SumOfLanes(D64(), total));
    }

  private:
    /// 64 bytes that keep, and 64 that do not.
    static constexpr auto kFirstBytes = [] {
        std::array<std::uint8_t, 128> bytes{};
        for (std::size_t i = 0; i < 64; ++i) bytes[i] = 255;
        return bytes;
    }();
    HWY_INLINE Total sums_where(hn::Vec<D8> kept, hn::Vec<D8> exponents) const {
        const auto index = hn::Min(hn::SaturatedSub(exponents, low_), top_);
        const auto low = hn::SumsOf8(hn::And(kept, hn::TableLookupBytes(low_bytes_, index)));
        const auto high = hn::SumsOf8(hn::And(kept, hn::TableLookupBytes(high_bytes_, index)));
        return hn::Add(low, hn::ShiftLeft<8>(high));
    }
    hn::Vec<D8> low_bytes_, high_bytes_, low_, top_;
};

/// A few groups of 64 elements each, as far as scan_weighted() came with them. Whether a group has
/// any change is as good as random, so it is not branched on: those that have are collected, and
/// looked at afterwards, while as many more as kAheadBytes holds are on their way from memory.
class WeighedGroups {
    using D8 = hn::ScalableTag<std::uint8_t>;
    using D64 = hn::Repartition<std::uint64_t, D8>;

  public:
    static constexpr std::size_t kRoom = 32;

    std::uint8_t* exponents_of(std::size_t group) { return exponents_ + group * 64; }
    /// `before` is the weight of all elements before the group.
    HWY_INLINE void add(std::size_t group, std::uint64_t mask, Weigher::Total before) {
        hn::Store(before, D64(), before_ + group * hn::Lanes(D64()));
        masks_[changed_] = mask;
        groups_[changed_] = group;
        changed_ += mask != 0 ? 1 : 0;
    }
    /// Hands out what changed, and begins anew. The groups lie from `first` on.
    HWY_INLINE void hand_out(std::size_t first, const Weigher& weigher, const WeightedScan& scan) {
        WeightedChange changes[2 * 64];
        std::size_t count = 0;
        for (std::size_t i = 0; i < changed_; ++i) {
            const std::size_t group = groups_[i];
            const std::uint8_t* const exponents = exponents_of(group);
            const auto before = hn::Load(D64(), before_ + group * hn::Lanes(D64()));
            for (std::uint64_t mask = masks_[i]; mask != 0; mask &= mask - 1) {
                const auto inside = static_cast<std::size_t>(std::countr_zero(mask));
                const auto start = weigher.sum_of_first(inside, exponents, before);
                changes[count++] = {Weigher::reduce(start),
                                    static_cast<std::uint32_t>(first + group * 64 + inside),
                                    exponents[inside]};
            }
            if (count <= 64) continue;
            scan.take(scan.taker, {changes, count});
            count = 0;
        }
        if (count > 0) scan.take(scan.taker, {changes, count});
        changed_ = 0;
    }

  private:
    HWY_ALIGN std::uint8_t exponents_[kRoom * 64];
    HWY_ALIGN std::uint64_t before_[kRoom * HWY_MAX_BYTES / 8];
    std::uint64_t masks_[kRoom + 1];
    std::size_t groups_[kRoom + 1];
    std::size_t changed_ = 0;
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
    WeighedGroups weighed;
    Weigher::Total before = hn::Zero(hn::Repartition<std::uint64_t, decltype(d8)>());
    // With the digest there is enough to do for each line that the requests cost nothing.
    const bool asks_ahead = kMix || !reads_ahead_by_itself();
    std::size_t first = 0;
    while (first + 64 <= count) {
        const std::size_t groups = std::min(WeighedGroups::kRoom, (count - first) / 64);
        for (std::size_t group = 0; group < groups; ++group) {
            const std::byte* const old_group = old_bits + (first + group * 64) * sizeof(T);
            const std::byte* const new_group = new_bits + (first + group * 64) * sizeof(T);
            if (asks_ahead) prefetch_ahead<T>(old_group, new_group);
            weighed.add(group, changed_mask<T>(old_group, new_group), before);
            std::uint8_t* const exponents = weighed.exponents_of(group);
            const auto look = [&](std::size_t i) HWY_ATTR {
                const auto value = hn::LoadU(d, lanes_at<T>(old_group) + i);
                if constexpr (kMix) mixer.add(hn::BitCast(d64, value));
                return value;
            };
            if constexpr (sizeof(T) == 2) {
                // The common width stays in registers: bytes stored and read back at once would
                // wait.
                for (std::size_t i = 0; i < 64; i += hn::Lanes(d8)) {
                    const auto low = look(i);
                    const auto both = taker.bytes_of_both(low, look(i + hn::Lanes(d)));
                    hn::Store(both, d8, exponents + i);
                    before = hn::Add(before, weigher.sums_of(both));
                }
            } else {
                for (std::size_t i = 0; i < 64; i += hn::Lanes(d)) {
                    taker.take(look(i), exponents + i);
                }
                for (std::size_t i = 0; i < 64; i += hn::Lanes(d8)) {
                    before = hn::Add(before, weigher.sums_of(hn::Load(d8, exponents + i)));
                }
            }
        }
        weighed.hand_out(first, weigher, scan);
        first += groups * 64;
    }
    if constexpr (kMix) {
        *scan.digest.digest += mixer.sum();
        *scan.digest.digest += kReferenceKernels.mix_bytes(
            old_bits + first * sizeof(T), (count - first) * sizeof(T), *scan.digest.seed,
            scan.digest.first_word + first * sizeof(T) / 8);
    }
    scan_weighted_from(first, Weigher::reduce(before), old_bits, new_bits, count, sizeof(T), scan);
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

template <class T>
HWY_INLINE std::size_t take_exponents_of(const std::byte* bits, std::size_t count,
                                         const ExponentField& field, std::uint8_t* exponents) {
    const hn::ScalableTag<T> d;
    const ExponentTaker<T> taker(field);
    std::size_t i = 0;
    if constexpr (sizeof(T) == 2) {
        const hn::ScalableTag<std::uint8_t> d8;
        for (; i + hn::Lanes(d8) <= count; i += hn::Lanes(d8)) {
            const T* const elements = lanes_at<T>(bits) + i;
            __builtin_prefetch(bits + i * sizeof(T) + kAheadBytes);
            const auto low = hn::LoadU(d, elements);
            const auto high = hn::LoadU(d, elements + hn::Lanes(d));
            hn::StoreU(taker.bytes_of_both(low, high), d8, exponents + i);
        }
    }
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

void weight_kernels(Kernels& table) {
    table.scan_weighted = scan_weighted;
    table.take_exponents = take_exponents;
    table.weigh = weigh;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace wisp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_ONCE
namespace wisp {

HWY_EXPORT(weight_kernels);

void set_weight_kernels(Kernels& table) {
    HWY_DYNAMIC_DISPATCH(weight_kernels)(table);
}

}  // namespace wisp
#endif
