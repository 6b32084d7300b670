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

#include "kernel/element_class.hpp"
#include "kernel/mix.hpp"
#include "wisp/result.hpp"

namespace wisp {

/// weigh() sums this many elements at a time. Not part of any format.
inline constexpr std::size_t kGroupElements = 32;

struct Kernels {
    std::string_view name;

    /// Writes the indices of elements whose bits differ, ascending, and returns how many.
    /// `positions` has room for `count` of them.
    std::size_t (*find_changes)(const std::byte* old_bits, const std::byte* new_bits,
                                std::size_t count, unsigned element_bytes,
                                std::uint32_t* positions);

    /// find_changes that also adds the mix of every word of `old_bits` to `digest`, in the same
    /// pass. The last word may be short: it is taken as padded with zeros.
    std::size_t (*find_changes_and_mix)(const std::byte* old_bits, const std::byte* new_bits,
                                        std::size_t count, unsigned element_bytes,
                                        std::uint32_t* positions, const TensorSeed& seed,
                                        std::uint64_t first_word, StateDigest& digest);

    /// The sum of mix_word over `size_bytes` bytes from word `first_word` of a tensor on.
    StateDigest (*mix_bytes)(const std::byte* bytes, std::size_t size_bytes,
                             const TensorSeed& seed, std::uint64_t first_word);

    /// sums[g] = the weights of elements 32g … 32g+31; the last group may be short.
    void (*weigh)(const std::byte* bits, std::size_t count, unsigned element_bytes,
                  const ClassWindow& window, const WeightTable& weights, std::uint32_t* sums);
};

/// The reference first, then every vector table this machine can run.
std::span<const Kernels> all_kernels();

const Kernels& active_kernels();

/// kInvalid when WISP_KERNEL names no table that runs here.
Result<void> check_kernel_choice();

extern const Kernels kReferenceKernels;

}  // namespace wisp
