#include "checkpoint/needed_tiles.hpp"

#include <fmt/format.h>

#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace {

class TileMarker {
  public:
    TileMarker(const TensorInfo& tensor, const TileGrid& grid)
        : grid_(grid),
          columns_(grid.strips() > 1 ? tensor.shape.back() : 1),
          needed_(static_cast<std::size_t>(grid.count())) {}

    /// All tiles that have an element of [first, past).
    void mark(std::uint64_t first, std::uint64_t past) {
        const unsigned log2 = grid_.cut().log2_band_elements;
        for (std::uint64_t at = first; at < past;) {
            const std::uint64_t band = at >> log2;
            const std::uint64_t end = std::min(past, (band + 1) << log2);
            mark_strips(band, at, end);
            at = end;
        }
    }
    std::vector<bool> take() { return std::move(needed_); }

  private:
    void mark_strips(std::uint64_t band, std::uint64_t first, std::uint64_t past) {
        const std::uint64_t strips = grid_.strips();
        const std::uint64_t width = columns_ / strips;
        const bool around = past - first >= columns_;
        const std::uint64_t from = strips == 1 || around ? 0 : first % columns_ / width;
        const std::uint64_t to = strips == 1 || around ? strips - 1 : (past - 1) % columns_ / width;
        for (std::uint64_t strip = from;; strip = (strip + 1) % strips) {
            needed_[static_cast<std::size_t>(band * strips + strip)] = true;
            if (strip == to) return;
        }
    }
    const TileGrid& grid_;
    std::uint64_t columns_;
    std::vector<bool> needed_;
};

/// The runs of a part from dimension `at` on. What is not in a row is marked with all that lies
/// between: it is how engines hold nothing that matters.
void mark_part(const HeldPart& part, std::size_t at, std::uint64_t first, TileMarker& marker) {
    std::uint64_t reach = 1;  // how many elements follow each other
    bool in_a_row = true;
    for (std::size_t i = part.dimensions.size(); i-- > at;) {
        const auto& [size, stride] = part.dimensions[i];
        if (size == 0) return;
        in_a_row = in_a_row && (size == 1 || stride == reach);
        reach += (size - 1) * stride;
    }
    if (in_a_row || at + 1 >= part.dimensions.size()) {
        marker.mark(first, first + reach);
        return;
    }
    for (std::uint64_t i = 0; i < part.dimensions[at].size; ++i) {
        mark_part(part, at + 1, first + i * part.dimensions[at].stride, marker);
    }
}

bool lies_inside(const HeldPart& part, std::uint64_t elements) {
    std::uint64_t last = part.first;
    for (const auto& [size, stride] : part.dimensions) {
        std::uint64_t along = 0;
        if (size == 0) return true;
        if (__builtin_mul_overflow(size - 1, stride, &along) ||
            __builtin_add_overflow(last, along, &last)) {
            return false;
        }
    }
    return last < elements;
}

}  // namespace

Result<std::vector<bool>> needed_tiles(const TensorInfo& tensor, const TileGrid& grid,
                                       std::span<const HeldPart> parts) {
    TileMarker marker(tensor, grid);
    for (const HeldPart& part : parts) {
        if (!lies_inside(part, element_count_of(tensor))) {
            return fail(
                ErrorKind::kInvalid,
                fmt::format("what is held of tensor {} lies past its end", shown(tensor.name)));
        }
        mark_part(part, 0, part.first, marker);
    }
    return marker.take();
}

}  // namespace wisp
