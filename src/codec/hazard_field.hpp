// The hazard along a block: how much weight lies before an element, and which element holds a
// point.
//
// Sums are made chunk by chunk as the walk comes by, so that both the exponents and what is made of
// them are in the nearest cache when they are looked at. Inside a chunk everything is found without
// a branch that depends on the data: guessing wrong would cost more than the work. Only walks
// forward.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "codec/sparse_header.hpp"
#include "kernel/eights.hpp"
#include "kernel/kernels.hpp"

namespace wisp {

class HazardField {
  public:
    HazardField(std::span<const std::byte> block, unsigned element_bytes,
                const ExponentField& field, const SparseHeader& header);

    struct Place {
        std::size_t position;
        std::uint64_t start;  // the weight of all elements before
        std::uint32_t weight;
        std::uint32_t element_class;
    };

    /// The place of an element. Positions asked for ascend.
    Place at(std::size_t position) {
        while (position >= chunk_first_ + kChunk) next_chunk();
        const std::size_t inside = position - chunk_first_;
        const std::uint32_t* const sums = &sums_[inside / 64 * 8];
        const std::uint8_t* const exponents = &exponents_[inside / 8 * 8];
        auto start = static_cast<std::uint32_t>(group_starts_[inside / 64]);
        start += sum_of_first(sums, kFirstOfEight[inside / 8 % 8]);
        start += weight_of_first(exponents, weight_of_.data(), kFirstOfEight[inside % 8]);
        const std::uint8_t exponent = exponents[inside % 8];
        return {position, chunk_start_ + start, weight_of_[exponent], window_.class_of(exponent)};
    }

    /// The element whose stretch holds `point`; false when the block ends before. Points ascend.
    bool find(std::uint64_t point, Place& place) {
        ask_ahead();
        while (point >= chunk_start_ + chunk_weight()) {
            if (chunk_first_ + kChunk >= count_) return false;
            next_chunk();
        }
        const auto rest = static_cast<std::int32_t>(point - chunk_start_);
        for (std::uint32_t passed = kLook; passed == kLook; group_ += passed) {
            passed = 0;
            for (std::size_t i = 1; i <= kLook; ++i) {
                passed += rest >= group_starts_[group_ + i] ? 1 : 0;
            }
        }
        auto start = static_cast<std::uint32_t>(group_starts_[group_]);
        std::size_t inside = group_ * 64;
        const std::uint32_t* const sums = &sums_[group_ * 8];
        const auto target = static_cast<std::uint32_t>(rest);
        std::uint32_t next = start;
        for (std::size_t i = 0; i < 7; ++i) {
            next += sums[i];
            const std::uint32_t behind = 0U - (target >= next ? 1U : 0U);
            start = (next & behind) | (start & ~behind);
            inside += behind & 8;
        }
        const std::uint8_t* const exponents = &exponents_[inside];
        next = start;
        for (std::size_t i = 0; i < 7; ++i) {
            next += weight_of_[exponents[i]];
            const std::uint32_t behind = 0U - (target >= next ? 1U : 0U);
            start = (next & behind) | (start & ~behind);
            inside += behind & 1;
        }
        const std::uint8_t exponent = exponents_[inside];
        place = {chunk_first_ + inside, chunk_start_ + start, weight_of_[exponent],
                 window_.class_of(exponent)};
        return true;
    }

  private:
    static constexpr std::size_t kChunk = 4096;
    static constexpr std::size_t kGroups = kChunk / 64;
    static constexpr std::size_t kLook = 8;  // groups looked at together
    static constexpr std::size_t kLineBytes = 64;
    static constexpr std::size_t kMostLinesEach = 16;  // more do not come while one change is found

    /// Hardware reads ahead only while memory is read, which looking for positions does not: so
    /// each of them asks for as much of what comes behind the chunk as lies between two changes.
    void ask_ahead() {
        const std::size_t first = (chunk_first_ + kChunk) * element_bytes_ / kLineBytes;
        const std::size_t last = first + 2 * kChunk * element_bytes_ / kLineBytes;
        asked_ = std::max(asked_, first);
        const std::size_t end = std::min({asked_ + lines_each_, last, line_count_});
        for (; asked_ < end; ++asked_) __builtin_prefetch(block_ + asked_ * kLineBytes);
    }
    std::uint32_t chunk_weight() const {
        return static_cast<std::uint32_t>(group_starts_[kGroups]);
    }
    void next_chunk() {
        chunk_start_ += chunk_weight();
        prepare(chunk_first_ + kChunk);
    }
    void prepare(std::size_t first);

    const std::byte* block_;
    const unsigned element_bytes_;
    const std::size_t count_;
    const ExponentField field_;
    const ClassWindow window_;
    const WeightTable weights_;
    std::array<std::uint32_t, 256> weight_of_;  // by exponent
    const std::size_t line_count_;
    const std::size_t lines_each_;
    std::size_t asked_ = 0;  // lines
    std::size_t chunk_first_ = 0;
    std::uint64_t chunk_start_ = 0;               // the weight of all elements before the chunk
    std::size_t group_ = 0;                       // of 64, inside the chunk
    std::array<std::uint8_t, kChunk> exponents_;  // of the chunk
    std::array<std::int32_t, kGroups + 1 + kLook> group_starts_;  // inside the chunk, and a fence
    std::array<std::uint32_t, kChunk / 8> sums_;                  // of eight elements each
};

}  // namespace wisp
