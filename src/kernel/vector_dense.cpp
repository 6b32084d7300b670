// The vector kernels of blocks in which much changed, compiled once per instruction set.
#include "kernel/vector.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/vector_dense.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

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
        const auto both = hn::Compress(hn::Or(wide_before, hn::ShiftLeft<16>(wide_after)), differs);
        hn::StoreU(hn::Compress(places, differs), d, room.positions + found);
        hn::StoreU(hn::TruncateTo(half, both), half, old_found);
        hn::StoreU(hn::TruncateTo(half, hn::ShiftRight<16>(both)), half, new_found);
        found += hn::CountTrue(d, differs);
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

#if HWY_TARGET <= HWY_AVX2

#if HWY_TARGET <= HWY_AVX3

/// The words of those lanes that the mask names, in order.
HWY_INLINE __m512i words_for(std::uint32_t mask, const std::byte* next) {
    const __m512i words =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(next)));
    return _mm512_maskz_expand_epi32(static_cast<__mmask16>(mask), words);
}

#else

/// For each mask of eight lanes, which word each of them takes.
struct WordOrder {
    alignas(8) std::uint8_t of_lane[256][8];
};
constexpr WordOrder word_order() {
    WordOrder order{};
    for (unsigned mask = 0; mask < 256; ++mask) {
        std::uint8_t next = 0;
        for (unsigned lane = 0; lane < 8; ++lane) {
            order.of_lane[mask][lane] = (mask >> lane & 1) != 0 ? next++ : std::uint8_t{0};
        }
    }
    return order;
}
constexpr WordOrder kWordOrder = word_order();

HWY_INLINE __m256i words_for(std::uint32_t mask, const std::byte* next) {
    const __m256i words =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(next)));
    const __m256i order = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kWordOrder.of_lane[mask])));
    return _mm256_permutevar8x32_epi32(words, order);
}

#endif

void take_tokens(TokenSource& source, const std::uint8_t* classes, std::size_t count,
                 std::uint8_t* tokens) {
    const hn::ScalableTag<std::uint32_t> d;
    const hn::RebindToSigned<decltype(d)> index;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    constexpr std::size_t kLanes = hn::MaxLanes(d);
    constexpr std::size_t kVectors = kTokenStates / kLanes;
    const auto slot_mask = hn::Set(d, (1U << kTokenBits) - 1);
    const auto lowest = hn::Set(d, kTokenStateLow);
    const auto one = hn::Set(d, 1U);
    hn::Vec<decltype(d)> states[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
        states[v] = hn::LoadU(d, source.states.data() + v * kLanes);
    }
    const std::byte* next = source.next;
    for (std::size_t i = 0; i < count; i += kTokenStates) {
        for (std::size_t v = 0; v < kVectors; ++v) {
            const std::size_t at = i + v * kLanes;
            const auto kind = hn::PromoteTo(d, hn::LoadU(d8, classes + at));
            const auto where =
                hn::Or(hn::ShiftLeft<kTokenBits>(kind), hn::And(states[v], slot_mask));
            const auto slot = hn::GatherIndex(d, source.slots, hn::BitCast(index, where));
            hn::StoreU(hn::TruncateTo(d8, slot), d8, tokens + at);
            const auto frequency = hn::Add(hn::ShiftRight<20>(slot), one);
            const auto bias = hn::And(hn::ShiftRight<8>(slot), slot_mask);
            const auto state =
                hn::Add(hn::Mul(frequency, hn::ShiftRight<kTokenBits>(states[v])), bias);
            const auto low = hn::Lt(state, lowest);
            std::uint8_t bits[8] = {};
            hn::StoreMaskBits(d, low, bits);
            std::uint16_t mask;
            std::memcpy(&mask, bits, 2);
            const hn::Vec<decltype(d)> words{words_for(mask, next)};
            states[v] = hn::IfThenElse(low, hn::Or(hn::ShiftLeft<16>(state), words), state);
            next += std::size_t{2} * hwy::PopCount(std::uint64_t{mask});
        }
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
        hn::StoreU(states[v], d, source.states.data() + v * kLanes);
    }
    source.next = next;
}

/// Divides by multiplying: half a unit more keeps a whole quotient from being rounded down, and is
/// less than a fraction of 1/4096 leaves.
template <class V>
HWY_INLINE auto quotients(V states, V symbols, const double* inverses) {
    const hn::ScalableTag<double> d;
    const hn::Rebind<std::int32_t, decltype(d)> half;
    const hn::RebindToSigned<decltype(d)> index;
    const auto part = [&](auto state, auto symbol) HWY_ATTR {
        // States are unsigned, and only signed numbers are converted at once.
        const auto shifted = hn::Xor(hn::BitCast(half, state), hn::Set(half, INT32_MIN));
        const auto number = hn::Add(hn::PromoteTo(d, shifted), hn::Set(d, 2147483648.5));
        const auto where = hn::PromoteTo(index, hn::BitCast(half, symbol));
        return hn::DemoteTo(half, hn::Mul(number, hn::GatherIndex(d, inverses, where)));
    };
    const hn::ScalableTag<std::uint32_t> whole;
    const hn::RebindToSigned<decltype(whole)> whole_signed;
    const auto low = part(hn::LowerHalf(states), hn::LowerHalf(symbols));
    const auto high = part(hn::UpperHalf(hn::Half<decltype(whole)>(), states),
                           hn::UpperHalf(hn::Half<decltype(whole)>(), symbols));
    return hn::BitCast(whole, hn::Combine(whole_signed, high, low));
}

void put_tokens(TokenSink& sink, const std::uint8_t* classes, std::size_t count,
                const std::uint8_t* tokens) {
    const hn::ScalableTag<std::uint32_t> d;
    const hn::RebindToSigned<decltype(d)> index;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    constexpr std::size_t kLanes = hn::MaxLanes(d);
    constexpr std::size_t kVectors = kTokenStates / kLanes;
    const auto slot_mask = hn::Set(d, (1U << kTokenBits) - 1);
    const auto slots = hn::Set(d, 1U << kTokenBits);
    hn::Vec<decltype(d)> states[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
        states[v] = hn::LoadU(d, sink.states.data() + v * kLanes);
    }
    std::uint16_t* next = sink.next;
    for (std::size_t i = count; i > 0; i -= kTokenStates) {
        for (std::size_t v = kVectors; v-- > 0;) {
            const std::size_t at = i - kTokenStates + v * kLanes;
            const auto kind = hn::PromoteTo(d, hn::LoadU(d8, classes + at));
            const auto token = hn::PromoteTo(d, hn::LoadU(d8, tokens + at));
            const auto symbol = hn::Or(hn::ShiftLeft<8>(kind), token);
            const auto slice = hn::GatherIndex(d, sink.slices, hn::BitCast(index, symbol));
            const auto frequency = hn::ShiftRight<kTokenBits>(slice);
            const auto high = hn::BitCast(index, hn::ShiftRight<20>(states[v]));
            const auto stays = hn::Lt(high, hn::BitCast(index, frequency));
            const auto overflows = hn::RebindMask(d, hn::Not(stays));
            // The last lane is read last, so it is written first.
            const auto words = hn::Compress(
                hn::Reverse(d, states[v]),
                hn::Ne(hn::Reverse(d, hn::IfThenElseZero(overflows, slots)), hn::Zero(d)));
            hn::StoreU(hn::TruncateTo(d16, words), d16, next);
            next += hn::CountTrue(d, overflows);
            const auto state = hn::IfThenElse(overflows, hn::ShiftRight<16>(states[v]), states[v]);
            const auto quotient = quotients(state, symbol, sink.inverses);
            states[v] = hn::Add(hn::Add(state, hn::And(slice, slot_mask)),
                                hn::Mul(quotient, hn::Sub(slots, frequency)));
        }
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
        hn::StoreU(states[v], d, sink.states.data() + v * kLanes);
    }
    sink.next = next;
}

#endif  // HWY_TARGET <= HWY_AVX2

void dense_kernels(Kernels& table) {
#if HWY_TARGET <= HWY_AVX2
    table.take_tokens = take_tokens;
    table.put_tokens = put_tokens;
#endif
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
