#include <cstring>

#include "kernel/elements.hpp"
#include "kernel/kernels.hpp"
#include "kernel/scatter.hpp"
#include "kernel/value_order.hpp"

namespace wisp {
namespace {

StateDigest mix_bytes(const std::byte* bytes, std::size_t size_bytes, const TensorSeed& seed,
                      std::uint64_t first_word) {
    StateDigest digest;
    for (std::size_t at = 0; at < size_bytes; at += 8) {
        digest += mix_word(seed, first_word + at / 8, load_word(bytes, at, size_bytes));
    }
    return digest;
}

void take_exponents(const std::byte* bits, std::size_t count, unsigned element_bytes,
                    const ExponentField& field, std::uint8_t* exponents) {
    with_element_type(element_bytes, [&]<class T>(T) {
        for (std::size_t i = 0; i < count; ++i) {
            exponents[i] = field.of(load_element<T>(bits, i));
        }
        return 0;
    });
}

void mix_old(const std::byte* old_bits, std::size_t size_bytes, const ScanDigest& digest) {
    if (digest.seed == nullptr) return;
    *digest.digest += mix_bytes(old_bits, size_bytes, *digest.seed, digest.first_word);
}

std::size_t scan(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                 unsigned element_bytes, std::uint32_t* positions, const ScanDigest& digest) {
    mix_old(old_bits, count * element_bytes, digest);
    return with_element_type(element_bytes, [&]<class T>(T) {
        std::size_t found = 0;
        for (std::size_t i = 0; i < count; ++i) {
            if (load_element<T>(old_bits, i) != load_element<T>(new_bits, i)) {
                positions[found++] = static_cast<std::uint32_t>(i);
            }
        }
        return found;
    });
}

void weigh(const std::uint8_t* exponents, std::size_t count, const ClassWindow& window,
           const WeightTable& weights, std::uint32_t* sums, std::uint32_t* totals) {
    for (std::size_t i = 0; i < count; ++i) {
        if (i % 64 == 0) totals[i / 64] = 0;
        if (i % 8 == 0) sums[i / 8] = 0;
        sums[i / 8] += weights[window.class_of(exponents[i])];
        totals[i / 64] += weights[window.class_of(exponents[i])];
    }
}

void scan_weighted(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                   unsigned element_bytes, const WeightedScan& scan) {
    mix_old(old_bits, count * element_bytes, scan.digest);
    scan_weighted_from(0, 0, old_bits, new_bits, count, element_bytes, scan);
}

void round_to_bf16(const std::byte* from, std::size_t count, std::byte* to) {
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = load_element<std::uint32_t>(from, i);
        const bool is_nan = (bits & std::uint32_t{kF32Magnitude}) > std::uint32_t{kF32Infinity};
        const std::uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
        const auto half = static_cast<std::uint16_t>(is_nan ? kBf16Nan : rounded);
        std::memcpy(to + i * 2, &half, 2);
    }
}

Comparison compare(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                   unsigned element_bytes, const TensorSeed& seed, std::uint64_t first_word) {
    const std::size_t size = count * element_bytes;
    Comparison comparison;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = i * element_bytes;
        comparison.changed += std::memcmp(old_bits + at, new_bits + at, element_bytes) != 0 ? 1 : 0;
    }
    for (std::size_t at = 0; at < size; at += 8) {
        const std::uint64_t before = load_word(old_bits, at, size);
        const std::uint64_t after = load_word(new_bits, at, size);
        const StateDigest mixed = mix_word(seed, first_word + at / 8, before);
        comparison.old_state += mixed;
        if (before == after) continue;
        comparison.touched.before += mixed;
        comparison.touched.after += mix_word(seed, first_word + at / 8, after);
    }
    return comparison;
}

std::size_t list_changes(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                         unsigned element_bytes, std::uint32_t first, const ChangeRoom& room) {
    const std::size_t found = scan(old_bits, new_bits, count, element_bytes, room.positions, {});
    gather(old_bits, {room.positions, found}, element_bytes, room.old_bits);
    gather(new_bits, {room.positions, found}, element_bytes, room.new_bits);
    for (std::size_t i = 0; i < found; ++i) room.positions[i] += first;
    return found;
}

TouchedSums mix_touched(const std::uint32_t* indices, const std::uint64_t* before,
                        const std::uint64_t* after, std::size_t count, const TensorSeed& seed,
                        std::uint64_t first_word) {
    TouchedSums sums;
    for (std::size_t i = 0; i < count; ++i) {
        sums.before += mix_word(seed, first_word + indices[i], before[i]);
        sums.after += mix_word(seed, first_word + indices[i], after[i]);
    }
    return sums;
}

void take_steps(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                unsigned element_bytes, bool sign_magnitude, std::byte* steps,
                std::uint8_t* capped) {
    with_element_type(element_bytes, [&]<class T>(T) {
        const ValueOrder<T> order(sign_magnitude);
        for (std::size_t i = 0; i < count; ++i) {
            const T step = zigzag(static_cast<T>(order(load_element<T>(new_bits, i)) -
                                                 order(load_element<T>(old_bits, i))));
            store_le<T>(steps + i * sizeof(T), step);
            capped[i] = static_cast<std::uint8_t>(std::min<std::uint64_t>(step, 255));
        }
        return 0;
    });
}

void follow_steps(const std::byte* old_bits, const std::byte* steps, std::size_t count,
                  unsigned element_bytes, bool sign_magnitude, std::byte* new_bits) {
    with_element_type(element_bytes, [&]<class T>(T) {
        const ValueOrder<T> order(sign_magnitude);
        for (std::size_t i = 0; i < count; ++i) {
            const T step = from_zigzag(load_element<T>(steps, i));
            const T moved = static_cast<T>(order(load_element<T>(old_bits, i)) + step);
            store_le<T>(new_bits + i * sizeof(T), order(moved));
        }
        return 0;
    });
}

void take_tokens(TokenSource& source, const std::uint8_t* classes, std::size_t count,
                 std::uint8_t* tokens) {
    const std::byte* next = source.next;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t& held = source.states[i % kTokenStates];
        std::uint32_t state = held;
        const std::uint32_t at = state & ((1U << kTokenBits) - 1);
        const std::uint32_t slot = source.slots[(std::size_t{classes[i]} << kTokenBits) + at];
        tokens[i] = static_cast<std::uint8_t>(slot);
        state = ((slot >> 20) + 1) * (state >> kTokenBits) + ((slot >> 8) & 0xFFF);
        // Whether a word is taken is as good as random, so it is not branched on.
        const unsigned low = state < kTokenStateLow ? 1 : 0;
        held = (state << (16 * low)) | (load_le<std::uint16_t>(next) & (0U - low));
        next += std::size_t{2} * low;
    }
    source.next = next;
}

void put_tokens(TokenSink& sink, const std::uint8_t* classes, std::size_t count,
                const std::uint8_t* tokens) {
    for (std::size_t i = count; i-- > 0;) {
        std::uint32_t& state = sink.states[i % kTokenStates];
        const std::uint32_t slice = sink.slices[std::size_t{classes[i]} << 8 | tokens[i]];
        const std::uint32_t frequency = slice >> kTokenBits;
        const unsigned overflows = state >> 20 >= frequency ? 1 : 0;
        *sink.next = static_cast<std::uint16_t>(state);
        sink.next += overflows;
        state >>= 16 * overflows;
        state = ((state / frequency) << kTokenBits) + state % frequency + (slice & 0xFFF);
    }
}

}  // namespace

void scan_weighted_from(std::size_t first, std::uint64_t start, const std::byte* old_bits,
                        const std::byte* new_bits, std::size_t count, unsigned element_bytes,
                        const WeightedScan& scan) {
    for (std::size_t i = first; i < count; ++i) {
        const std::size_t at = i * element_bytes;
        std::uint8_t exponent = 0;
        take_exponents(old_bits + at, 1, element_bytes, scan.field, &exponent);
        if (std::memcmp(old_bits + at, new_bits + at, element_bytes) != 0) {
            const WeightedChange change = {start, static_cast<std::uint32_t>(i), exponent};
            scan.take(scan.taker, {&change, 1});
        }
        start += scan.weights[scan.window.class_of(exponent)];
    }
}

const Kernels kReferenceKernels = {"reference",  scan,           scan_weighted, mix_bytes,
                                   mix_touched,  take_exponents, weigh,         compare,
                                   list_changes, take_steps,     follow_steps,  take_tokens,
                                   put_tokens,   round_to_bf16};

}  // namespace wisp
