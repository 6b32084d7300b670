// Which lanes of a vector, once per instruction set that Highway compiles.
#if defined(WISP_KERNEL_LANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef WISP_KERNEL_LANES_INL_HPP
#undef WISP_KERNEL_LANES_INL_HPP
#else
#define WISP_KERNEL_LANES_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace wisp::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_MAX_BYTES <= 32 && !HWY_HAVE_SCALABLE

/// For each mask of eight lanes, those it names.
struct LaneOrder {
    alignas(8) std::uint8_t named[256][8];
};
constexpr LaneOrder lane_order(bool ascending) {
    LaneOrder order{};
    for (unsigned mask = 0; mask < 256; ++mask) {
        std::size_t next = 0;
        for (unsigned i = 0; i < 8; ++i) {
            const unsigned lane = ascending ? i : 7 - i;
            if ((mask >> lane & 1) != 0) {
                order.named[mask][next++] = static_cast<std::uint8_t>(lane);
            }
        }
    }
    return order;
}
constexpr LaneOrder kAscending = lane_order(true);
constexpr LaneOrder kDescending = lane_order(false);

template <class V>
HWY_INLINE V in_order(const LaneOrder& order, V lanes, std::uint64_t mask) {
    const hn::DFromV<V> d;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const auto named = hn::PromoteTo(d, hn::LoadU(d8, order.named[mask]));
    return hn::TableLookupLanes(lanes, hn::IndicesFromVec(d, named));
}

/// hn::Compress has a table of its own, which GCC 12 copies onto the stack for every call.
template <class V>
HWY_INLINE V compressed(V lanes, std::uint64_t mask) {
    return in_order(kAscending, lanes, mask);
}
template <class V>
HWY_INLINE V compressed_backwards(V lanes, std::uint64_t mask) {
    return in_order(kDescending, lanes, mask);
}

#else

template <class V>
HWY_INLINE V compressed(V lanes, std::uint64_t mask) {
    const hn::DFromV<V> d;
    return hn::Compress(lanes, hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&mask)));
}
template <class V>
HWY_INLINE V compressed_backwards(V lanes, std::uint64_t mask) {
    const hn::DFromV<V> d;
    const auto named = hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&mask));
    const auto marks = hn::IfThenElseZero(named, hn::Set(d, 1U));
    return hn::Compress(hn::Reverse(d, lanes), hn::Ne(hn::Reverse(d, marks), hn::Zero(d)));
}

#endif

/// A bit for each lane, the first the lowest.
template <class D, class Mask>
HWY_INLINE std::uint64_t mask_bits(D d, Mask mask) {
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, mask, bits);
    std::uint64_t word;
    std::memcpy(&word, bits, 8);
    return word;
}

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace wisp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
