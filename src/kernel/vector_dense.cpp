// The vector kernels of blocks in which much changed, compiled once per instruction set.
#include "kernel/vector.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/vector_dense.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/lanes_inl.hpp"
#include "kernel/mixer_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace wisp::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void dense_kernels(Kernels&) {}

#else

template <class T>
HWY_INLINE Comparison compare_of(const std::byte* old_bits, const std::byte* new_bits,
                                 std::size_t count, const TensorSeed& seed,
                                 std::uint64_t first_word) {
    const hn::ScalableTag<T> d;
    const hn::Repartition<std::uint64_t, decltype(d)> d64;
    Mixer all(seed, first_word);
    Mixer before(seed, first_word);
    Mixer after(seed, first_word);
    Comparison comparison;
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
        __builtin_prefetch(old_bits + i * sizeof(T) + kAheadBytes);
        __builtin_prefetch(new_bits + i * sizeof(T) + kAheadBytes);
        const auto x = hn::LoadU(d, lanes_at<T>(old_bits) + i);
        const auto y = hn::LoadU(d, lanes_at<T>(new_bits) + i);
        comparison.changed += hn::CountTrue(d, hn::Ne(x, y));
        const auto old_words = hn::BitCast(d64, x);
        const auto new_words = hn::BitCast(d64, y);
        const auto touched = hn::Ne(old_words, new_words);
        all.add(old_words);
        before.add_where(touched, old_words);
        after.add_where(touched, new_words);
    }
    comparison.old_state = all.sum();
    comparison.touched = {before.sum(), after.sum()};
    // Whole words are done, since a vector holds nothing else.
    const Comparison rest =
        kReferenceKernels.compare(old_bits + i * sizeof(T), new_bits + i * sizeof(T), count - i,
                                  sizeof(T), seed, first_word + i * sizeof(T) / 8);
    comparison.changed += rest.changed;
    comparison.touched += rest.touched;
    comparison.old_state += rest.old_state;
    return comparison;
}

Comparison compare(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                   unsigned element_bytes, const TensorSeed& seed, std::uint64_t first_word) {
    switch (element_bytes) {
        case 1: return compare_of<std::uint8_t>(old_bits, new_bits, count, seed, first_word);
        case 2: return compare_of<std::uint16_t>(old_bits, new_bits, count, seed, first_word);
        case 4: return compare_of<std::uint32_t>(old_bits, new_bits, count, seed, first_word);
        default: return compare_of<std::uint64_t>(old_bits, new_bits, count, seed, first_word);
    }
}

/// Both elements in one word of 32 bits, so that one compression serves them.
std::size_t list_changes(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                         unsigned element_bytes, std::uint32_t first, const ChangeRoom& room) {
    const hn::ScalableTag<std::uint32_t> d;
    const hn::Rebind<std::uint16_t, decltype(d)> half;
    std::size_t found = 0;
    std::size_t i = 0;
    // Counted on rather than made anew, which would go through memory.
    auto places = hn::Iota(d, first);
    const auto lanes = hn::Set(d, static_cast<std::uint32_t>(hn::Lanes(d)));
    // Other widths are rare, and go the plain way.
    for (; element_bytes == 2 && i + hn::Lanes(d) <= count;
         i += hn::Lanes(d), places = hn::Add(places, lanes)) {
        const auto before = hn::LoadU(half, lanes_at<std::uint16_t>(old_bits) + i);
        const auto after = hn::LoadU(half, lanes_at<std::uint16_t>(new_bits) + i);
        const auto wide_before = hn::PromoteTo(d, before);
        const auto wide_after = hn::PromoteTo(d, after);
        const auto differs = hn::Ne(wide_before, wide_after);
        // No more were found than were passed, so that whole vectors fit behind them.
        std::uint16_t* const old_found = lanes_at<std::uint16_t>(room.old_bits) + found;
        std::uint16_t* const new_found = lanes_at<std::uint16_t>(room.new_bits) + found;
        if (hn::AllTrue(d, differs)) {
            hn::StoreU(places, d, room.positions + found);
            hn::StoreU(before, half, old_found);
            hn::StoreU(after, half, new_found);
            found += hn::Lanes(d);
            continue;
        }
        const std::uint64_t mask = mask_bits(d, differs);
        const auto both = compressed(hn::Or(wide_before, hn::ShiftLeft<16>(wide_after)), mask);
        hn::StoreU(compressed(places, mask), d, room.positions + found);
        hn::StoreU(hn::TruncateTo(half, both), half, old_found);
        hn::StoreU(hn::TruncateTo(half, hn::ShiftRight<16>(both)), half, new_found);
        found += hwy::PopCount(mask);
    }
    return found + kReferenceKernels.list_changes(
                       old_bits + i * element_bytes, new_bits + i * element_bytes, count - i,
                       element_bytes, first + static_cast<std::uint32_t>(i),
                       room.behind(found, element_bytes));
}

/// value_order.hpp by vectors.
template <class T>
class VectorOrder {
    using D = hn::ScalableTag<T>;
    using Signed = hn::RebindToSigned<D>;

  public:
    explicit VectorOrder(bool sign_magnitude)
        : magnitude_(
              hn::Set(D(), sign_magnitude ? static_cast<T>(static_cast<T>(~T{0}) >> 1) : T{0})) {}
    HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> bits) const {
        return hn::Xor(bits, hn::And(sign_of(bits), magnitude_));
    }
    static HWY_INLINE hn::Vec<D> sign_of(hn::Vec<D> bits) {
        return hn::BitCast(D(), hn::BroadcastSignBit(hn::BitCast(Signed(), bits)));
    }

  private:
    hn::Vec<D> magnitude_;
};

template <class T>
HWY_INLINE std::size_t take_steps_of(const std::byte* old_bits, const std::byte* new_bits,
                                     std::size_t count, bool sign_magnitude, std::byte* steps,
                                     std::uint8_t* capped) {
    const hn::ScalableTag<T> d;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const VectorOrder<T> order(sign_magnitude);
    const auto largest = hn::Set(d, static_cast<T>(255));
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
        const auto before = order(hn::LoadU(d, lanes_at<T>(old_bits) + i));
        const auto after = order(hn::LoadU(d, lanes_at<T>(new_bits) + i));
        const auto step = hn::Sub(after, before);
        const auto number = hn::Xor(hn::Add(step, step), VectorOrder<T>::sign_of(step));
        hn::StoreU(number, d, lanes_at<T>(steps) + i);
        const auto held = hn::Min(number, largest);
        if constexpr (sizeof(T) == 1) {
            hn::StoreU(held, d, capped + i);
        } else {
            hn::StoreU(hn::TruncateTo(d8, held), d8, capped + i);
        }
    }
    return i;
}

void take_steps(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                unsigned element_bytes, bool sign_magnitude, std::byte* steps,
                std::uint8_t* capped) {
    std::size_t done = 0;
    const auto take = [&]<class T>(T) HWY_ATTR {
        done = take_steps_of<T>(old_bits, new_bits, count, sign_magnitude, steps, capped);
    };
    switch (element_bytes) {
        case 1: take(std::uint8_t{}); break;
        case 2: take(std::uint16_t{}); break;
        case 4: take(std::uint32_t{}); break;
        default: take(std::uint64_t{}); break;
    }
    const std::size_t at = done * element_bytes;
    kReferenceKernels.take_steps(old_bits + at, new_bits + at, count - done, element_bytes,
                                 sign_magnitude, steps + at, capped + done);
}

template <class T>
HWY_INLINE std::size_t follow_steps_of(const std::byte* old_bits, const std::byte* steps,
                                       std::size_t count, bool sign_magnitude,
                                       std::byte* new_bits) {
    const hn::ScalableTag<T> d;
    const VectorOrder<T> order(sign_magnitude);
    const auto one = hn::Set(d, T{1});
    const auto upper = hn::Set(d, static_cast<T>(static_cast<T>(~T{0}) >> 1));
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
        const auto before = order(hn::LoadU(d, lanes_at<T>(old_bits) + i));
        const auto number = hn::LoadU(d, lanes_at<T>(steps) + i);
        const auto down = hn::Sub(hn::Zero(d), hn::And(number, one));
        const auto half = hn::And(hn::ShiftRightSame(number, 1), upper);
        hn::StoreU(order(hn::Add(before, hn::Xor(half, down))), d, lanes_at<T>(new_bits) + i);
    }
    return i;
}

void follow_steps(const std::byte* old_bits, const std::byte* steps, std::size_t count,
                  unsigned element_bytes, bool sign_magnitude, std::byte* new_bits) {
    std::size_t done = 0;
    const auto follow = [&]<class T>(T) HWY_ATTR {
        done = follow_steps_of<T>(old_bits, steps, count, sign_magnitude, new_bits);
    };
    switch (element_bytes) {
        case 1: follow(std::uint8_t{}); break;
        case 2: follow(std::uint16_t{}); break;
        case 4: follow(std::uint32_t{}); break;
        default: follow(std::uint64_t{}); break;
    }
    const std::size_t at = done * element_bytes;
    kReferenceKernels.follow_steps(old_bits + at, steps + at, count - done, element_bytes,
                                   sign_magnitude, new_bits + at);
}

void dense_kernels(Kernels& table) {
    table.compare = compare;
    table.list_changes = list_changes;
    table.take_steps = take_steps;
    table.follow_steps = follow_steps;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace wisp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_ONCE
namespace wisp {

HWY_EXPORT(dense_kernels);

void set_dense_kernels(Kernels& table) {
    HWY_DYNAMIC_DISPATCH(dense_kernels)(table);
}

}  // namespace wisp
#endif
