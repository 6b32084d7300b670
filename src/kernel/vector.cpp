// The vector kernels, compiled once per instruction set by Highway.
#include "kernel/vector.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/elements.hpp"

HWY_BEFORE_NAMESPACE();
namespace wisp::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

// One lane at a time has no byte shuffles; the reference is as fast.
Kernels vector_kernels() { return kReferenceKernels; }

#else

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
const T* lanes_at(const std::byte* bytes) {
    return reinterpret_cast<const T*>(bytes);
}

/// Sums of both halves of the digest, with the keys of the next words kept ready.
class Mixer {
    using D64 = hn::ScalableTag<std::uint64_t>;
    using D32 = hn::Repartition<std::uint32_t, D64>;
    using V = hn::Vec<D64>;

  public:
    Mixer(const TensorSeed& seed, std::uint64_t first_word)
        : key_a_(first_keys(seed.a + first_word * kKeyStrideA, kKeyStrideA)),
          key_b_(first_keys(seed.b + first_word * kKeyStrideB, kKeyStrideB)),
          stride_a_(hn::Set(D64(), hn::Lanes(D64()) * kKeyStrideA)),
          stride_b_(hn::Set(D64(), hn::Lanes(D64()) * kKeyStrideB)),
          sum_a_(hn::Zero(D64())),
          sum_b_(hn::Zero(D64())) {}

    HWY_INLINE void add(V words) {
        sum_a_ = hn::Add(sum_a_, fold(words, key_a_));
        sum_b_ = hn::Add(sum_b_, fold(words, key_b_));
        key_a_ = hn::Add(key_a_, stride_a_);
        key_b_ = hn::Add(key_b_, stride_b_);
    }

    StateDigest sum() const {
        const D64 d;
        return {hn::GetLane(hn::SumOfLanes(d, sum_a_)), hn::GetLane(hn::SumOfLanes(d, sum_b_))};
    }

  private:
    static V first_keys(std::uint64_t key, std::uint64_t stride) {
        HWY_ALIGN std::uint64_t keys[HWY_MAX_BYTES / 8];
        for (std::size_t i = 0; i < hn::Lanes(D64()); ++i) keys[i] = key + i * stride;
        return hn::Load(D64(), keys);
    }
    static HWY_INLINE V fold(V words, V key) {
        const V keyed = hn::Xor(words, key);
        const auto low = hn::BitCast(D32(), keyed);
        const auto high = hn::BitCast(D32(), hn::ShiftRight<32>(keyed));
        return hn::Add(hn::MulEven(low, high), words);
    }
    V key_a_, key_b_, stride_a_, stride_b_, sum_a_, sum_b_;
};

struct NoMixer {
    template <class V>
    HWY_INLINE void add(V) {}
};

/// The bits of 64 elements that differ, lowest first.
template <class T>
HWY_INLINE std::uint64_t changed_mask(const std::byte* old_bits, const std::byte* new_bits) {
    const hn::ScalableTag<T> d;
    const std::size_t lanes = hn::Lanes(d);
    std::uint64_t mask = 0;
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

/// Whether any of 64 elements differ; feeds their old words to the mixer on the way.
template <class Mix>
HWY_INLINE bool any_changed(const std::byte* old_bits, const std::byte* new_bits,
                            std::size_t size_bytes, Mix& mixer) {
    const hn::ScalableTag<std::uint64_t> d;
    const std::size_t step = hn::Lanes(d);
    auto differing = hn::Zero(d);
    for (std::size_t i = 0; i < size_bytes / 8; i += step) {
        const auto words = hn::LoadU(d, lanes_at<std::uint64_t>(old_bits) + i);
        mixer.add(words);
        differing = hn::Or(
            differing, hn::Xor(words, hn::LoadU(d, lanes_at<std::uint64_t>(new_bits) + i)));
    }
    return !hn::AllTrue(d, hn::Eq(differing, hn::Zero(d)));
}

template <class T, class Mix>
HWY_INLINE std::size_t find_changes_of(const std::byte* old_bits, const std::byte* new_bits,
                                       std::size_t count, std::uint32_t* positions, Mix& mixer) {
    constexpr std::size_t kChunkBytes = 64 * sizeof(T);
    std::size_t found = 0;
    std::size_t first = 0;
    for (; first + 64 <= count; first += 64, old_bits += kChunkBytes, new_bits += kChunkBytes) {
        if (HWY_LIKELY(!any_changed(old_bits, new_bits, kChunkBytes, mixer))) continue;
        for (std::uint64_t mask = changed_mask<T>(old_bits, new_bits); mask != 0;
             mask &= mask - 1) {
            positions[found++] =
                static_cast<std::uint32_t>(first + hwy::Num0BitsBelowLS1Bit_Nonzero64(mask));
        }
    }
    for (std::size_t i = 0; first + i < count; ++i) {
        if (load_element<T>(old_bits, i) != load_element<T>(new_bits, i)) {
            positions[found++] = static_cast<std::uint32_t>(first + i);
        }
    }
    return found;
}

std::size_t find_changes(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                         unsigned element_bytes, std::uint32_t* positions) {
    NoMixer mixer;
    switch (element_bytes) {
        case 1: return find_changes_of<std::uint8_t>(old_bits, new_bits, count, positions, mixer);
        case 2: return find_changes_of<std::uint16_t>(old_bits, new_bits, count, positions, mixer);
        case 4: return find_changes_of<std::uint32_t>(old_bits, new_bits, count, positions, mixer);
        default: return find_changes_of<std::uint64_t>(old_bits, new_bits, count, positions, mixer);
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
    StateDigest digest = mixer.sum();
    for (; at < size_bytes; at += 8) {
        digest += mix_word(seed, first_word + at / 8, load_word(bytes, at, size_bytes));
    }
    return digest;
}

std::size_t find_changes_and_mix(const std::byte* old_bits, const std::byte* new_bits,
                                 std::size_t count, unsigned element_bytes,
                                 std::uint32_t* positions, const TensorSeed& seed,
                                 std::uint64_t first_word, StateDigest& digest) {
    Mixer mixer(seed, first_word);
    std::size_t found = 0;
    switch (element_bytes) {
        case 1:
            found = find_changes_of<std::uint8_t>(old_bits, new_bits, count, positions, mixer);
            break;
        case 2:
            found = find_changes_of<std::uint16_t>(old_bits, new_bits, count, positions, mixer);
            break;
        case 4:
            found = find_changes_of<std::uint32_t>(old_bits, new_bits, count, positions, mixer);
            break;
        default:
            found = find_changes_of<std::uint64_t>(old_bits, new_bits, count, positions, mixer);
            break;
    }
    digest += mixer.sum();
    const std::size_t mixed_bytes = count / 64 * 64 * element_bytes;
    digest += mix_bytes(old_bits + mixed_bytes, count * element_bytes - mixed_bytes, seed,
                        first_word + mixed_bytes / 8);
    return found;
}

template <class T>
HWY_INLINE void weigh_of(const std::byte* bits, std::size_t groups, const ClassWindow& window,
                         const WeightTable& weights, std::uint32_t* sums) {
    const hn::ScalableTag<T> d;
    const hn::Repartition<std::uint8_t, decltype(d)> d8;
    const hn::Repartition<std::uint64_t, decltype(d)> d64;
    const auto low_bytes = hn::LoadDup128(d8, weights.low_bytes.data());
    const auto high_bytes = hn::LoadDup128(d8, weights.high_bytes.data());
    const auto mask = hn::Set(d, static_cast<T>(window.mask));
    const auto low = hn::Set(d, static_cast<T>(window.low));
    const auto top = hn::Set(d, static_cast<T>(window.top));
    // A set high bit makes the byte lookup yield zero: only each element's lowest byte counts.
    const auto unused =
        hn::Set(d, sizeof(T) == 1 ? T{0} : static_cast<T>(0x8080808080808080U << 8));
    for (std::size_t group = 0; group < groups; ++group) {
        auto low_sum = hn::Zero(d64);
        auto high_sum = hn::Zero(d64);
        for (std::size_t i = 0; i < kGroupElements; i += hn::Lanes(d)) {
            const auto value = hn::LoadU(d, lanes_at<T>(bits) + group * kGroupElements + i);
            const auto exponent =
                hn::And(hn::ShiftRightSame(value, static_cast<int>(window.shift)), mask);
            const auto index = hn::Min(hn::Sub(hn::Max(exponent, low), low), top);
            const auto lookup = hn::BitCast(d8, hn::Or(index, unused));
            low_sum = hn::Add(low_sum, hn::SumsOf8(hn::TableLookupBytesOr0(low_bytes, lookup)));
            high_sum = hn::Add(high_sum, hn::SumsOf8(hn::TableLookupBytesOr0(high_bytes, lookup)));
        }
        const auto sum = hn::Add(low_sum, hn::ShiftLeft<8>(high_sum));
        sums[group] = static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(d64, sum)));
    }
}

void weigh(const std::byte* bits, std::size_t count, unsigned element_bytes,
           const ClassWindow& window, const WeightTable& weights, std::uint32_t* sums) {
    const std::size_t groups = count / kGroupElements;
    switch (element_bytes) {
        case 1: weigh_of<std::uint8_t>(bits, groups, window, weights, sums); break;
        case 2: weigh_of<std::uint16_t>(bits, groups, window, weights, sums); break;
        case 4: weigh_of<std::uint32_t>(bits, groups, window, weights, sums); break;
        default: weigh_of<std::uint64_t>(bits, groups, window, weights, sums); break;
    }
    const std::size_t done = groups * kGroupElements;
    kReferenceKernels.weigh(bits + done * element_bytes, count - done, element_bytes, window,
                            weights, sums + groups);
}

Kernels vector_kernels() {
    return {hwy::TargetName(HWY_TARGET), find_changes, find_changes_and_mix, mix_bytes, weigh};
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
    }
    hwy::SetSupportedTargetsForTest(0);
    return tables;
}

}  // namespace wisp
#endif
