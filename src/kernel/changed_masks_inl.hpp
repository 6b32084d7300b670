// The groups that a scan found changed, once per instruction set that Highway compiles.
#if defined(WISP_KERNEL_CHANGED_MASKS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef WISP_KERNEL_CHANGED_MASKS_INL_HPP
#undef WISP_KERNEL_CHANGED_MASKS_INL_HPP
#else
#define WISP_KERNEL_CHANGED_MASKS_INL_HPP
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernel/mixer_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace wisp::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

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

/// Groups of 64 elements of which some changed. Whether a group has any is as good as random, so it
/// is not branched on: they are collected, and listed a few hundred at a time.
class ChangedMasks {
  public:
    HWY_INLINE void add(std::uint64_t mask, std::uint32_t first) {
        masks_[count_] = mask;
        firsts_[count_] = first;
        count_ += mask != 0 ? 1 : 0;
    }
    bool full() const { return count_ == kRoom; }
    /// Writes the positions, and perhaps one more: no more are found than elements were passed, so
    /// that there is room. Returns how many, and begins anew.
    HWY_INLINE std::size_t list(std::uint32_t* positions) {
        std::uint32_t* next = positions;
        for (std::size_t i = 0; i < count_; ++i) {
            std::uint64_t mask = masks_[i];
            const auto place = [&](std::size_t at) HWY_ATTR {
                next[at] = firsts_[i] + static_cast<std::uint32_t>(std::countr_zero(mask));
                mask &= mask - 1;
            };
            const auto changed = static_cast<std::size_t>(std::popcount(mask));
            place(0);
            place(1);
            for (std::size_t at = 2; HWY_UNLIKELY(at < changed); ++at) place(at);
            next += changed;
        }
        count_ = 0;
        return static_cast<std::size_t>(next - positions);
    }

  private:
    static constexpr std::size_t kRoom = 256;
    std::uint64_t masks_[kRoom + 1];
    std::uint32_t firsts_[kRoom + 1];
    std::size_t count_ = 0;
};

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace wisp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
