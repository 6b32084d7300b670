// The vector kernels of token streams, compiled once per instruction set that has the lanes.
#include "kernel/vector.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/vector_tokens.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/lanes_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace wisp::HWY_NAMESPACE {
#if HWY_TARGET > HWY_AVX2

// Without a permutation of all lanes by another vector the reference is as fast.
void token_kernels(Kernels&) {}

#else

#if HWY_TARGET <= HWY_AVX3

using Words = hn::Vec<hn::ScalableTag<std::uint32_t>>;

HWY_INLINE Words looked_up(const std::uint32_t* table, Words indices) {
    const hn::ScalableTag<std::int32_t> index;
    return hn::GatherIndex(hn::ScalableTag<std::uint32_t>(), table, hn::BitCast(index, indices));
}

/// States below the lowest take words, in order.
HWY_INLINE Words refilled(Words states, const std::byte*& next) {
    const hn::ScalableTag<std::uint32_t> d;
    const auto low = hn::Lt(states, hn::Set(d, kTokenStateLow));
    const __m512i words = _mm512_maskz_expand_epi32(
        low.raw, _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(next))));
    next += std::size_t{2} * hwy::PopCount(static_cast<std::uint64_t>(low.raw));
    return hn::IfThenElse(low, hn::Or(hn::ShiftLeft<16>(states), Words{words}), states);
}

/// Those of the states that would overflow give a word, the last lane, which is read last, first.
HWY_INLINE Words spilled(Words states, Words frequencies, std::uint16_t*& next) {
    const hn::ScalableTag<std::uint32_t> d;
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    const auto overflows = hn::Not(hn::Lt(hn::ShiftRight<20>(states), frequencies));
    const std::uint64_t mask = mask_bits(d, overflows);
    hn::StoreU(hn::TruncateTo(d16, compressed_backwards(states, mask)), d16, next);
    next += hwy::PopCount(mask);
    return hn::IfThenElse(overflows, hn::ShiftRight<16>(states), states);
}

/// The lowest byte of each slot of both vectors.
HWY_INLINE void store_tokens(const Words (&slots)[2], std::uint8_t* tokens) {
    const hn::ScalableTag<std::uint32_t> d;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    hn::StoreU(hn::TruncateTo(d8, slots[0]), d8, tokens);
    hn::StoreU(hn::TruncateTo(d8, slots[1]), d8, tokens + hn::Lanes(d));
}

#else

using Words = hn::Vec<hn::ScalableTag<std::uint32_t>>;

/// Lane by lane, the lanes broadcast and blended: of the gather instruction of AMD's processors
/// with AVX2, and of shuffles, they can do fewer at a time.
HWY_INLINE Words looked_up(const std::uint32_t* table, Words indices) {
    const __m128i low_half = _mm256_castsi256_si128(indices.raw);
    const __m128i high_half = _mm256_extracti128_si256(indices.raw, 1);
    const std::uint64_t pairs[4] = {static_cast<std::uint64_t>(_mm_cvtsi128_si64(low_half)),
                                    static_cast<std::uint64_t>(_mm_extract_epi64(low_half, 1)),
                                    static_cast<std::uint64_t>(_mm_cvtsi128_si64(high_half)),
                                    static_cast<std::uint64_t>(_mm_extract_epi64(high_half, 1))};
    const auto lane = [&](std::size_t i) HWY_ATTR {
        const std::uint64_t pair = pairs[i / 2];
        return _mm256_set1_epi32(
            static_cast<int>(table[i % 2 == 0 ? static_cast<std::uint32_t>(pair) : pair >> 32]));
    };
    const __m256i low = _mm256_blend_epi32(_mm256_blend_epi32(lane(0), lane(1), 0x2),
                                           _mm256_blend_epi32(lane(2), lane(3), 0x8), 0xC);
    const __m256i high = _mm256_blend_epi32(_mm256_blend_epi32(lane(4), lane(5), 0x20),
                                            _mm256_blend_epi32(lane(6), lane(7), 0x80), 0xC0);
    return Words{_mm256_blend_epi32(low, high, 0xF0)};
}

/// For each mask of eight lanes, where the bytes of each lane come from: of the words, one after
/// the other, to those lanes that it names.
struct WordOrder {
    alignas(32) std::uint8_t bytes[256][32];
};
constexpr WordOrder word_order() {
    WordOrder order{};
    for (unsigned mask = 0; mask < 256; ++mask) {
        std::uint8_t next = 0;
        for (unsigned lane = 0; lane < 8; ++lane) {
            std::uint8_t* const bytes = order.bytes[mask] + lane * 4;
            for (unsigned i = 0; i < 4; ++i) {
                const bool taken = (mask >> lane & 1) != 0 && i < 2;
                bytes[i] = taken ? next++ : std::uint8_t{0x80};  // zero
            }
        }
    }
    return order;
}
constexpr WordOrder kWordOrder = word_order();

/// States below the lowest take words, in order.
HWY_INLINE Words refilled(Words states, const std::byte*& next) {
    const __m256i high = _mm256_and_si256(states.raw, _mm256_set1_epi32(-0x10000));
    const __m256i low = _mm256_cmpeq_epi32(high, _mm256_setzero_si256());
    const auto mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(low)));
    const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(next));
    const __m256i order =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(kWordOrder.bytes[mask]));
    const __m256i taken = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(words), order);
    const __m256i shift = _mm256_and_si256(low, _mm256_set1_epi32(16));
    next += std::size_t{2} * static_cast<unsigned>(_mm_popcnt_u32(mask));
    return Words{_mm256_or_si256(_mm256_sllv_epi32(states.raw, shift), taken)};
}

/// For each mask of eight lanes, where the bytes of the words that they give come from.
struct SpillOrder {
    alignas(16) std::uint8_t bytes[256][16];
};
constexpr SpillOrder spill_order() {
    SpillOrder order{};
    for (unsigned mask = 0; mask < 256; ++mask) {
        std::uint8_t* next = order.bytes[mask];
        for (unsigned lane = 8; lane-- > 0;) {
            if ((mask >> lane & 1) == 0) continue;
            *next++ = static_cast<std::uint8_t>(2 * lane);
            *next++ = static_cast<std::uint8_t>(2 * lane + 1);
        }
    }
    return order;
}
constexpr SpillOrder kSpillOrder = spill_order();

/// Those of the states that would overflow give a word, the last lane, which is read last, first.
HWY_INLINE Words spilled(Words states, Words frequencies, std::uint16_t*& next) {
    const __m256i stays = _mm256_cmpgt_epi32(frequencies.raw, _mm256_srli_epi32(states.raw, 20));
    const auto mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(stays))) ^ 0xFFU;
    const __m256i low = _mm256_and_si256(states.raw, _mm256_set1_epi32(0xFFFF));
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(kSpillOrder.bytes[mask]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(next), _mm_shuffle_epi8(words, order));
    next += _mm_popcnt_u32(mask);
    const __m256i shift = _mm256_andnot_si256(stays, _mm256_set1_epi32(16));
    return Words{_mm256_srlv_epi32(states.raw, shift)};
}

/// The lowest byte of each slot of all vectors.
HWY_INLINE void store_tokens(const Words (&slots)[4], std::uint8_t* tokens) {
    const auto token = [&](std::size_t i) HWY_ATTR {
        return _mm256_and_si256(slots[i].raw, _mm256_set1_epi32(0xFF));
    };
    const __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(token(0), token(1)),
                                              _mm256_packus_epi32(token(2), token(3)));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(tokens),
                        _mm256_permutevar8x32_epi32(bytes, order));
}

#endif

// Sixteen or eight states in a vector.
constexpr std::size_t kStateLanes = hn::MaxLanes(hn::ScalableTag<std::uint32_t>());
constexpr std::size_t kStateVectors = kTokenStates / kStateLanes;
static_assert(kStateVectors == 2 || kStateVectors == 4);

/// All states, by names of their own: the compiler leaves an array in memory, and the way there and
/// back is a good part of what each turn waits for.
struct StateVectors {
    explicit StateVectors(const std::array<std::uint32_t, kTokenStates>& states)
        : a(load(states, 0)), b(load(states, 1)), c(load(states, 2)), d(load(states, 3)) {}
    void store(std::array<std::uint32_t, kTokenStates>& states) const {
        const auto put = [&](Words vector, std::size_t v) HWY_ATTR {
            hn::StoreU(vector, hn::ScalableTag<std::uint32_t>(), states.data() + v * kStateLanes);
        };
        put(a, 0);
        put(b, 1);
        if constexpr (kStateVectors == 2) return;
        put(c, 2);
        put(d, 3);
    }
    Words a, b, c, d;  // the last two of AVX2 only

  private:
    static Words load(const std::array<std::uint32_t, kTokenStates>& states, std::size_t v) {
        const hn::ScalableTag<std::uint32_t> tag;
        return hn::LoadU(tag, states.data() + v % kStateVectors * kStateLanes);
    }
};

void take_tokens(TokenSource& source, const std::uint8_t* classes, std::size_t count,
                 std::uint8_t* tokens) {
    const hn::ScalableTag<std::uint32_t> d;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const auto slot_mask = hn::Set(d, (1U << kTokenBits) - 1);
    const auto one = hn::Set(d, 1U);
    StateVectors states(source.states);
    const std::uint32_t* const slots = source.slots;
    const std::byte* next = source.next;
    const auto take = [&](Words& held, std::size_t at) HWY_ATTR {
        const auto kind = hn::PromoteTo(d, hn::LoadU(d8, classes + at));
        const auto where = hn::Or(hn::ShiftLeft<kTokenBits>(kind), hn::And(held, slot_mask));
        const auto slot = looked_up(slots, where);
        const auto frequency = hn::Add(hn::ShiftRight<20>(slot), one);
        const auto bias = hn::And(hn::ShiftRight<8>(slot), slot_mask);
        const auto state = hn::Add(hn::Mul(frequency, hn::ShiftRight<kTokenBits>(held)), bias);
        held = refilled(state, next);
        return slot;
    };
    for (std::size_t i = 0; i < count; i += kTokenStates) {
        const Words a = take(states.a, i);
        const Words b = take(states.b, i + kStateLanes);
#if HWY_TARGET <= HWY_AVX3
        store_tokens({a, b}, tokens + i);
#else
        const Words c = take(states.c, i + 2 * kStateLanes);
        store_tokens({a, b, c, take(states.d, i + 3 * kStateLanes)}, tokens + i);
#endif
    }
    states.store(source.states);
    source.next = next;
}

/// Of numbers below 2^31: hn::ConvertTo would also hold larger ones to that.
template <class V>
HWY_INLINE auto truncated(V real) {
    const hn::RebindToSigned<hn::DFromV<V>> number;
#if HWY_TARGET == HWY_AVX2
    return hn::Vec<decltype(number)>{_mm256_cvttps_epi32(real.raw)};
#else
    return hn::ConvertTo(number, real);
#endif
}

/// states / frequencies, whose quotients are below 2^20. In single precision, with a little taken
/// off, they are at most one too low, which the remainder tells.
template <class V>
HWY_INLINE V quotients(V states, V frequencies) {
    const hn::DFromV<V> d;
    const hn::RebindToSigned<decltype(d)> number;
    const hn::RebindToFloat<decltype(d)> real;
    // States are unsigned, and only signed numbers are converted at once.
    const auto as_signed = hn::BitCast(number, states);
    const auto wrapped = hn::BitCast(real, hn::BroadcastSignBit(as_signed));
    const auto dividend =
        hn::Add(hn::ConvertTo(real, as_signed), hn::And(wrapped, hn::Set(real, 0x1p32F)));
    const auto divisor = hn::ConvertTo(real, hn::BitCast(number, frequencies));
    const auto less = hn::Mul(hn::Div(dividend, divisor), hn::Set(real, 1.0F - 0x1p-21F));
    const auto low = hn::BitCast(d, truncated(less));
    const auto left = hn::BitCast(number, hn::Sub(states, hn::Mul(low, frequencies)));
    const auto right = hn::VecFromMask(number, hn::Lt(left, hn::BitCast(number, frequencies)));
    return hn::Add(low, hn::BitCast(d, hn::Add(right, hn::Set(number, 1))));
}

void put_tokens(TokenSink& sink, const std::uint8_t* classes, std::size_t count,
                const std::uint8_t* tokens) {
    const hn::ScalableTag<std::uint32_t> d;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const auto slot_mask = hn::Set(d, (1U << kTokenBits) - 1);
    const auto all_slots = hn::Set(d, 1U << kTokenBits);
    StateVectors states(sink.states);
    const std::uint32_t* const slices = sink.slices;
    std::uint16_t* next = sink.next;
    const auto put = [&](Words& held, std::size_t at) HWY_ATTR {
        const auto kind = hn::PromoteTo(d, hn::LoadU(d8, classes + at));
        const auto token = hn::PromoteTo(d, hn::LoadU(d8, tokens + at));
        const auto symbol = hn::Or(hn::ShiftLeft<8>(kind), token);
        const auto slice = looked_up(slices, symbol);
        const auto frequency = hn::ShiftRight<kTokenBits>(slice);
        const auto state = spilled(held, frequency, next);
        const auto quotient = quotients(state, frequency);
        held = hn::Add(hn::Add(state, hn::And(slice, slot_mask)),
                       hn::Mul(quotient, hn::Sub(all_slots, frequency)));
    };
    for (std::size_t i = count; i > 0; i -= kTokenStates) {
        if constexpr (kStateVectors == 4) {
            put(states.d, i - kStateLanes);
            put(states.c, i - 2 * kStateLanes);
        }
        put(states.b, i - kTokenStates + kStateLanes);
        put(states.a, i - kTokenStates);
    }
    states.store(sink.states);
    sink.next = next;
}

void token_kernels(Kernels& table) {
    table.take_tokens = take_tokens;
    table.put_tokens = put_tokens;
}

#endif  // HWY_TARGET > HWY_AVX2

}  // namespace wisp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_ONCE
namespace wisp {

HWY_EXPORT(token_kernels);

void set_token_kernels(Kernels& table) {
    HWY_DYNAMIC_DISPATCH(token_kernels)(table);
}

}  // namespace wisp
#endif
