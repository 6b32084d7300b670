// The vector kernels, compiled once per instruction set by Highway.
#include "kernel/vector.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/vector.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/changed_masks_inl.hpp"
#include "kernel/elements.hpp"
#include "kernel/mixer_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace wisp::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

// One lane at a time has no byte shuffles; the reference is as fast.
Kernels vector_kernels() {
    return kReferenceKernels;
}

#else

template <class T, bool kMix>
HWY_INLINE std::size_t scan_of(const std::byte* old_bits, const std::byte* new_bits,
                               std::size_t count, std::uint32_t* positions,
                               const ScanDigest& digest) {
    const hn::ScalableTag<T> d;
    const hn::Repartition<std::uint64_t, decltype(d)> d64;
    constexpr std::size_t kChunkBytes = 64 * sizeof(T);
    const TensorSeed unseeded;
    Mixer mixer(kMix ? *digest.seed : unseeded, digest.first_word);
    const bool asks_ahead = !reads_ahead_by_itself();
    std::size_t found = 0;
    std::size_t first = 0;
    ChangedMasks masks;
    for (; first + 64 <= count; first += 64, old_bits += kChunkBytes, new_bits += kChunkBytes) {
        if (asks_ahead) prefetch_ahead<T>(old_bits, new_bits);
        if constexpr (kMix) {
            for (std::size_t i = 0; i < 64; i += hn::Lanes(d)) {
                mixer.add(hn::BitCast(d64, hn::LoadU(d, lanes_at<T>(old_bits) + i)));
            }
        }
        masks.add(changed_mask<T>(old_bits, new_bits), static_cast<std::uint32_t>(first));
        if (masks.full()) found += masks.list(positions + found);
    }
    found += masks.list(positions + found);
    if constexpr (kMix) *digest.digest += mixer.sum();
    // What is left is less than 64 elements.
    const ScanDigest rest = {digest.seed, digest.first_word + first * sizeof(T) / 8, digest.digest};
    const std::size_t found_in_rest = kReferenceKernels.scan(old_bits, new_bits, count - first,
                                                             sizeof(T), positions + found, rest);
    for (std::size_t i = 0; i < found_in_rest; ++i) {
        positions[found + i] += static_cast<std::uint32_t>(first);
    }
    return found + found_in_rest;
}

template <class T>
HWY_INLINE std::size_t scan_as(const std::byte* old_bits, const std::byte* new_bits,
                               std::size_t count, std::uint32_t* positions,
                               const ScanDigest& digest) {
    return digest.seed != nullptr ? scan_of<T, true>(old_bits, new_bits, count, positions, digest)
                                  : scan_of<T, false>(old_bits, new_bits, count, positions, digest);
}

std::size_t scan(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                 unsigned element_bytes, std::uint32_t* positions, const ScanDigest& digest) {
    switch (element_bytes) {
        case 1: return scan_as<std::uint8_t>(old_bits, new_bits, count, positions, digest);
        case 2: return scan_as<std::uint16_t>(old_bits, new_bits, count, positions, digest);
        case 4: return scan_as<std::uint32_t>(old_bits, new_bits, count, positions, digest);
        default: return scan_as<std::uint64_t>(old_bits, new_bits, count, positions, digest);
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
    return mixer.sum() +
           kReferenceKernels.mix_bytes(bytes + at, size_bytes - at, seed, first_word + at / 8);
}

TouchedSums mix_touched(const std::uint32_t* indices, const std::uint64_t* before,
                        const std::uint64_t* after, std::size_t count, const TensorSeed& seed,
                        std::uint64_t first_word) {
    const hn::ScalableTag<std::uint64_t> d;
    const hn::Rebind<std::uint32_t, decltype(d)> half;
    const KeysAt keys_a(seed.a + first_word * kKeyStrideA, kKeyStrideA);
    const KeysAt keys_b(seed.b + first_word * kKeyStrideB, kKeyStrideB);
    auto before_a = hn::Zero(d);
    auto before_b = before_a;
    auto after_a = before_a;
    auto after_b = before_a;
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
        const auto places = hn::PromoteTo(d, hn::LoadU(half, indices + i));
        const auto key_a = keys_a(places);
        const auto key_b = keys_b(places);
        const auto x = hn::LoadU(d, before + i);
        const auto y = hn::LoadU(d, after + i);
        before_a = hn::Add(before_a, Mixer::fold(x, key_a));
        before_b = hn::Add(before_b, Mixer::fold(x, key_b));
        after_a = hn::Add(after_a, Mixer::fold(y, key_a));
        after_b = hn::Add(after_b, Mixer::fold(y, key_b));
    }
    TouchedSums sums = kReferenceKernels.mix_touched(indices + i, before + i, after + i, count - i,
                                                     seed, first_word);
    sums.before += {Mixer::total(before_a), Mixer::total(before_b)};
    sums.after += {Mixer::total(after_a), Mixer::total(after_b)};
    return sums;
}

void round_to_bf16(const std::byte* from, std::size_t count, std::byte* to) {
    const hn::ScalableTag<std::int32_t> d;
    const hn::Rebind<std::uint16_t, decltype(d)> half;
    std::size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
        __builtin_prefetch(from + i * sizeof(float) + kAheadBytes);
        const auto bits = hn::LoadU(d, lanes_at<std::int32_t>(from) + i);
        const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
        const auto sum = hn::Add(hn::Add(bits, odd), hn::Set(d, 0x7FFF));
        const auto rounded = hn::And(hn::ShiftRight<16>(sum), hn::Set(d, 0xFFFF));
        const auto size = hn::And(bits, hn::Set(d, kF32Magnitude));
        const auto is_nan = hn::Gt(size, hn::Set(d, kF32Infinity));
        hn::StoreU(hn::DemoteTo(half, hn::IfThenElse(is_nan, hn::Set(d, kBf16Nan), rounded)), half,
                   reinterpret_cast<std::uint16_t*>(to) + i);
    }
    kReferenceKernels.round_to_bf16(from + i * 4, count - i, to + i * 2);
}

Kernels vector_kernels() {
    const std::string_view name = hwy::TargetName(HWY_TARGET);
    Kernels table = kReferenceKernels;
    table.name = name;
    table.scan = scan;
    table.mix_bytes = mix_bytes;
    table.mix_touched = mix_touched;
    table.round_to_bf16 = round_to_bf16;
    return table;
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace wisp::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_ONCE
namespace wisp {

HWY_EXPORT(vector_kernels);

bool reads_ahead_by_itself() {
#if defined(__x86_64__)
    static const bool is_amd = __builtin_cpu_is("amd") != 0;
    return is_amd;
#else
    return false;
#endif
}

std::vector<Kernels> vector_kernels_of_this_machine() {
    std::vector<Kernels> tables;
    const std::int64_t supported = hwy::SupportedTargets();
    for (std::int64_t bits = supported & HWY_TARGETS; bits != 0; bits &= bits - 1) {
        if ((bits & -bits) == HWY_SCALAR) continue;
        hwy::SetSupportedTargetsForTest(bits & -bits);
        tables.push_back(HWY_DYNAMIC_DISPATCH(vector_kernels)());
        set_weight_kernels(tables.back());
        set_dense_kernels(tables.back());
        set_token_kernels(tables.back());
    }
    hwy::SetSupportedTargetsForTest(0);
    return tables;
}

}  // namespace wisp
#endif
