// The loops that touch every byte of a model, one table per instruction set.
//
// Pure functions over memory that need not be aligned; no allocation, no errors. `reference` is the
// plain scalar one that all others must equal. WISP_KERNEL=<name> forces a table; an unknown or
// unsupported name is reported by check_kernel_choice() and the best table is used meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernel/kernel_data.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct Kernels {
    std::string_view name;

    /// Writes the indices of elements whose bits differ, ascending, and returns how many.
    /// `positions` has room for `count` of them.
    std::size_t (*scan)(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                        unsigned element_bytes, std::uint32_t* positions, const ScanDigest& digest);

    /// scan() that also weighs the old elements and hands out what changed, ascending, a few at a
    /// time: what they lie in is still in the nearest cache.
    void (*scan_weighted)(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                          unsigned element_bytes, const WeightedScan& scan);

    /// The sum of mix_word over `size_bytes` bytes from word `first_word` of a tensor on. The last
    /// word may be short: it is taken as padded with zeros.
    StateDigest (*mix_bytes)(const std::byte* bytes, std::size_t size_bytes, const TensorSeed& seed,
                             std::uint64_t first_word);

    /// The sums of mix_word over `count` words of a tensor before and after, which lie `indices`
    /// words behind `first_word`.
    TouchedSums (*mix_touched)(const std::uint32_t* indices, const std::uint64_t* before,
                               const std::uint64_t* after, std::size_t count,
                               const TensorSeed& seed, std::uint64_t first_word);

    /// The exponent of each element.
    void (*take_exponents)(const std::byte* bits, std::size_t count, unsigned element_bytes,
                           const ExponentField& field, std::uint8_t* exponents);

    /// sums[i] = the weights of exponents[8i … 8i+7], totals[j] = of exponents[64j … 64j+63].
    /// `count` is a multiple of 64.
    void (*weigh)(const std::uint8_t* exponents, std::size_t count, const ClassWindow& window,
                  const WeightTable& weights, std::uint32_t* sums, std::uint32_t* totals);

    /// What differs between two blocks, without a list of it.
    Comparison (*compare)(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                          unsigned element_bytes, const TensorSeed& seed, std::uint64_t first_word);

    /// scan() that also puts the elements at the positions side by side, and counts from `first`.
    /// There is room for `count` of each; what is behind those found may be overwritten.
    std::size_t (*list_changes)(const std::byte* old_bits, const std::byte* new_bits,
                                std::size_t count, unsigned element_bytes, std::uint32_t first,
                                const ChangeRoom& room);

    /// The step from each old element to the new one, zigzag: 0, -1, +1, -2 … are 0, 1, 2, 3 ….
    /// With `sign_magnitude` the elements are floats. `capped` are the same, at most 255.
    void (*take_steps)(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                       unsigned element_bytes, bool sign_magnitude, std::byte* steps,
                       std::uint8_t* capped);
    /// The new elements where those steps lead. `steps` is aligned to its elements.
    void (*follow_steps)(const std::byte* old_bits, const std::byte* steps, std::size_t count,
                         unsigned element_bytes, bool sign_magnitude, std::byte* new_bits);

    /// The next `count` tokens, a multiple of kTokenStates, each of its class. There is a word left
    /// for every one of them.
    void (*take_tokens)(TokenSource& source, const std::uint8_t* classes, std::size_t count,
                        std::uint8_t* tokens);

    /// Puts down so many tokens, the last first; the vector ones a multiple of kTokenStates. There
    /// is room for a word for every one of them and kTokenStates more.
    void (*put_tokens)(TokenSink& sink, const std::uint8_t* classes, std::size_t count,
                       const std::uint8_t* tokens);

    /// float32 to bf16, to the nearest, ties to even; whatever NaN becomes kBf16Nan. `to` is
    /// aligned to its elements.
    void (*round_to_bf16)(const std::byte* from, std::size_t count, std::byte* to);
};

inline constexpr std::int32_t kF32Magnitude = 0x7FFF'FFFF;
inline constexpr std::int32_t kF32Infinity = 0x7F80'0000;
inline constexpr std::int32_t kBf16Nan = 0xFFFF;  // as torch on a CPU

/// The reference first, then every vector table this machine can run, best first.
std::span<const Kernels> all_kernels();

const Kernels& active_kernels();

/// kInvalid when WISP_KERNEL names no table that runs here.
Result<void> check_kernel_choice();

extern const Kernels kReferenceKernels;

/// The reference scan_weighted, from element `first` on, before which lies the weight `start`; the
/// digest is left alone. The vector kernels end with it.
void scan_weighted_from(std::size_t first, std::uint64_t start, const std::byte* old_bits,
                        const std::byte* new_bits, std::size_t count, unsigned element_bytes,
                        const WeightedScan& scan);

}  // namespace wisp
