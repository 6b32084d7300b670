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

HWY_BEFORE_NAMESPACE();
namespace wisp::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

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
