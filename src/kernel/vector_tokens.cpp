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

/// The words of those lanes that the mask names, in order.
HWY_INLINE __m512i words_for(std::uint32_t mask, const std::byte* next) {
    const __m512i words =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(next)));
    return _mm512_maskz_expand_epi32(static_cast<__mmask16>(mask), words);
}

#else

using Words = hn::Vec<hn::ScalableTag<std::uint32_t>>;

/// Lane by lane: AMD's processors with AVX2 take a fifth longer over their gather instruction.
HWY_INLINE Words looked_up(const std::uint32_t* table, Words indices) {
    const auto both = [&](std::uint64_t pair) HWY_ATTR {
        const auto low = static_cast<int>(table[static_cast<std::uint32_t>(pair)]);
        return _mm_insert_epi32(_mm_cvtsi32_si128(low), static_cast<int>(table[pair >> 32]), 1);
    };
    const auto four = [&](__m128i half) HWY_ATTR {
        return _mm_unpacklo_epi64(both(static_cast<std::uint64_t>(_mm_cvtsi128_si64(half))),
                                  both(static_cast<std::uint64_t>(_mm_extract_epi64(half, 1))));
    };
    const __m128i low = four(_mm256_castsi256_si128(indices.raw));
    return Words{_mm256_inserti128_si256(_mm256_castsi128_si256(low),
                                         four(_mm256_extracti128_si256(indices.raw, 1)), 1)};
}

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
    const std::uint32_t* const slots = source.slots;
    const std::byte* next = source.next;
    for (std::size_t i = 0; i < count; i += kTokenStates) {
        for (std::size_t v = 0; v < kVectors; ++v) {
            const std::size_t at = i + v * kLanes;
            const auto kind = hn::PromoteTo(d, hn::LoadU(d8, classes + at));
            const auto where =
                hn::Or(hn::ShiftLeft<kTokenBits>(kind), hn::And(states[v], slot_mask));
            const auto slot = looked_up(slots, where);
            hn::StoreU(hn::TruncateTo(d8, slot), d8, tokens + at);
            const auto frequency = hn::Add(hn::ShiftRight<20>(slot), one);
            const auto bias = hn::And(hn::ShiftRight<8>(slot), slot_mask);
            const auto state =
                hn::Add(hn::Mul(frequency, hn::ShiftRight<kTokenBits>(states[v])), bias);
            const auto low = hn::Lt(state, lowest);
            const std::uint64_t mask = mask_bits(d, low);
            const hn::Vec<decltype(d)> words{words_for(static_cast<std::uint32_t>(mask), next)};
            states[v] = hn::IfThenElse(low, hn::Or(hn::ShiftLeft<16>(state), words), state);
            next += std::size_t{2} * hwy::PopCount(mask);
        }
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
        hn::StoreU(states[v], d, source.states.data() + v * kLanes);
    }
    source.next = next;
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
    const auto low = hn::BitCast(d, hn::ConvertTo(number, less));
    const auto left = hn::BitCast(number, hn::Sub(states, hn::Mul(low, frequencies)));
    const auto right = hn::VecFromMask(number, hn::Lt(left, hn::BitCast(number, frequencies)));
    return hn::Add(low, hn::BitCast(d, hn::Add(right, hn::Set(number, 1))));
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
    const auto all_slots = hn::Set(d, 1U << kTokenBits);
    hn::Vec<decltype(d)> states[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
        states[v] = hn::LoadU(d, sink.states.data() + v * kLanes);
    }
    const std::uint32_t* const slices = sink.slices;
    std::uint16_t* next = sink.next;
    for (std::size_t i = count; i > 0; i -= kTokenStates) {
        for (std::size_t v = kVectors; v-- > 0;) {
            const std::size_t at = i - kTokenStates + v * kLanes;
            const auto kind = hn::PromoteTo(d, hn::LoadU(d8, classes + at));
            const auto token = hn::PromoteTo(d, hn::LoadU(d8, tokens + at));
            const auto symbol = hn::Or(hn::ShiftLeft<8>(kind), token);
            const auto slice = looked_up(slices, symbol);
            const auto frequency = hn::ShiftRight<kTokenBits>(slice);
            const auto high = hn::BitCast(index, hn::ShiftRight<20>(states[v]));
            const auto stays = hn::Lt(high, hn::BitCast(index, frequency));
            const auto overflows = hn::RebindMask(d, hn::Not(stays));
            // The last lane is read last, so it is written first.
            const std::uint64_t mask = mask_bits(d, overflows);
            const auto words = compressed_backwards(states[v], mask);
            hn::StoreU(hn::TruncateTo(d16, words), d16, next);
            next += hwy::PopCount(mask);
            const auto state = hn::IfThenElse(overflows, hn::ShiftRight<16>(states[v]), states[v]);
            const auto quotient = quotients(state, frequency);
            states[v] = hn::Add(hn::Add(state, hn::And(slice, slot_mask)),
                                hn::Mul(quotient, hn::Sub(all_slots, frequency)));
        }
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
        hn::StoreU(states[v], d, sink.states.data() + v * kLanes);
    }
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
