// Lanes of memory and the vector form of mix.hpp, once per instruction set that Highway compiles.
#if defined(WISP_KERNEL_MIXER_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef WISP_KERNEL_MIXER_INL_HPP
#undef WISP_KERNEL_MIXER_INL_HPP
#else
#define WISP_KERNEL_MIXER_INL_HPP
#endif

#include <hwy/highway.h>

#include "kernel/mix.hpp"

HWY_BEFORE_NAMESPACE();
namespace wisp::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kAheadBytes = 2048;

template <class T>
const T* lanes_at(const std::byte* bytes) {
    return reinterpret_cast<const T*>(bytes);
}
template <class T>
T* lanes_at(std::byte* bytes) {
    return reinterpret_cast<T*>(bytes);
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
        pass();
    }
    /// Adds those of the words that the mask names.
    template <class Mask>
    HWY_INLINE void add_where(Mask mask, V words) {
        sum_a_ = hn::Add(sum_a_, hn::IfThenElseZero(mask, fold(words, key_a_)));
        sum_b_ = hn::Add(sum_b_, hn::IfThenElseZero(mask, fold(words, key_b_)));
        pass();
    }

    StateDigest sum() const { return {total(sum_a_), total(sum_b_)}; }

    static HWY_INLINE V fold(V words, V key) {
        const V keyed = hn::Xor(words, key);
        const auto low = hn::BitCast(D32(), keyed);
        const auto high = hn::BitCast(D32(), hn::ShiftRight<32>(keyed));
        return hn::Add(hn::MulEven(low, high), words);
    }
    /// GCC 12 reduces 64-bit lanes as signed numbers, which these sums overflow.
    static std::uint64_t total(V sums) {
        HWY_ALIGN std::uint64_t lanes[HWY_MAX_BYTES / 8];
        hn::Store(sums, D64(), lanes);
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < hn::Lanes(D64()); ++i) sum += lanes[i];
        return sum;
    }

  private:
    HWY_INLINE void pass() {
        key_a_ = hn::Add(key_a_, stride_a_);
        key_b_ = hn::Add(key_b_, stride_b_);
    }
    static V first_keys(std::uint64_t key, std::uint64_t stride) {
        HWY_ALIGN std::uint64_t keys[HWY_MAX_BYTES / 8];
        for (std::size_t i = 0; i < hn::Lanes(D64()); ++i) keys[i] = key + i * stride;
        return hn::Load(D64(), keys);
    }
    V key_a_, key_b_, stride_a_, stride_b_, sum_a_, sum_b_;
};

/// The keys of words that lie anywhere.
class KeysAt {
    using D64 = hn::ScalableTag<std::uint64_t>;
    using D32 = hn::Repartition<std::uint32_t, D64>;
    using V = hn::Vec<D64>;

  public:
    KeysAt(std::uint64_t first, std::uint64_t stride)
        : first_(hn::Set(D64(), first)),
          low_(hn::BitCast(D32(), hn::Set(D64(), stride & 0xFFFFFFFF))),
          high_(hn::BitCast(D32(), hn::Set(D64(), stride >> 32))) {}

    /// `indices` are below 2^32.
    HWY_INLINE V operator()(V indices) const {
        const auto factor = hn::BitCast(D32(), indices);
        return hn::Add(hn::Add(first_, hn::MulEven(factor, low_)),
                       hn::ShiftLeft<32>(hn::MulEven(factor, high_)));
    }

  private:
    V first_;
    hn::Vec<D32> low_, high_;
};

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace wisp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
