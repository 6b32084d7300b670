// The parameters of a sparse block: how many changes, which classes, what weight each class has.
//
// Weight codes of neighbouring classes are expected to differ by one octave (8 steps), since the
// chance to change halves with each binade; a nibble holds the deviation. doc/format.md section 7.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"
#include "kernel/element_class.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct SparseHeader {
    std::uint64_t change_count = 0;
    ClassWindow window;
    unsigned hazard_shift = 0;
    std::array<std::uint8_t, kMaxClasses> weight_codes{};

    WeightTable weights() const;
};

void write_sparse_header(const SparseHeader& header, Bytes& out);

/// kCorrupt names the rule that is broken.
Result<SparseHeader> parse_sparse_header(ByteReader& in, const ExponentField& field,
                                         std::uint64_t element_count);

}  // namespace wisp
