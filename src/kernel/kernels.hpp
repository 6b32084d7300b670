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

/// What scan() does on its one pass over two blocks, besides finding where they differ.
struct ScanOptions {
    const TensorSeed* seed = nullptr;  // set: add the mix of the old words to `digest`
    std::uint64_t first_word = 0;
    StateDigest* digest = nullptr;
    std::uint8_t* exponents = nullptr;  // set: write the exponent of every old element
    ExponentField field;
};

struct Kernels {
    std::string_view name;

    /// Writes the indices of elements whose bits differ, ascending, and returns how many.
    /// `positions` has room for `count` of them.
    std::size_t (*scan)(const std::byte* old_bits, const std::byte* new_bits, std::size_t count,
                        unsigned element_bytes, std::uint32_t* positions,
                        const ScanOptions& options);

    /// The sum of mix_word over `size_bytes` bytes from word `first_word` of a tensor on. The last
    /// word may be short: it is taken as padded with zeros.
    StateDigest (*mix_bytes)(const std::byte* bytes, std::size_t size_bytes,
                             const TensorSeed& seed, std::uint64_t first_word);

    /// The exponent of each element.
    void (*take_exponents)(const std::byte* bits, std::size_t count, unsigned element_bytes,
                           const ExponentField& field, std::uint8_t* exponents);

    /// sums[i] = the weights of exponents[8i … 8i+7], totals[j] = of exponents[64j … 64j+63].
    /// `count` is a multiple of 64.
    void (*weigh)(const std::uint8_t* exponents, std::size_t count, const ClassWindow& window,
                  const WeightTable& weights, std::uint32_t* sums, std::uint32_t* totals);
};

/// The reference first, then every vector table this machine can run, best first.
std::span<const Kernels> all_kernels();

const Kernels& active_kernels();

/// kInvalid when WISP_KERNEL names no table that runs here.
Result<void> check_kernel_choice();

extern const Kernels kReferenceKernels;

}  // namespace wisp
