// How a tensor of a sliced delta is cut into tiles: doc/format.md section 6.
//
// A band is a run of 2^n elements; a strip, a range of columns, the last axis. A tile is what lies
// in one band and one strip, in the tensor's own order, and is coded by itself. Strips begin and
// end on words of the digest, so that each tile can be proven by itself. Engines cut matrices by
// rows or by columns, so a cut along the right axis lets a host fetch its share alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wisp/schema.hpp"

namespace wisp {

struct TensorCut {
    unsigned log2_band_elements = 0;
    std::uint64_t strips = 1;
    friend bool operator==(const TensorCut&, const TensorCut&) = default;
};

/// The cut that a writer takes for a delta of so many slices. By name, since nothing else says
/// along which axis engines will cut: those they split along their inputs get strips. A wrong guess
/// costs bytes on the wire, nothing else.
TensorCut choose_cut(const TensorInfo& tensor, unsigned slices);
/// Whether the tensor can be cut so; the band has been held against its limits.
bool can_cut(const TensorInfo& tensor, const TensorCut& cut);

/// One tile, and the way between its positions and the tensor's elements.
struct Tile {
    std::uint64_t first_element = 0;  // of its band
    std::uint64_t band_elements = 0;
    std::uint64_t columns = 1;  // of the tensor
    std::uint64_t first_column = 0;
    std::uint64_t width = 1;

    std::uint64_t element_count() const {
        return count_before(first_element + band_elements) - count_before(first_element);
    }
    /// How many of the strip's elements come before this one of the tensor.
    std::uint64_t count_before(std::uint64_t element) const {
        if (width == columns) return element;
        const std::uint64_t column = element % columns;
        const std::uint64_t inside = column <= first_column ? 0 : column - first_column;
        return element / columns * width + std::min(inside, width);
    }
    /// Ascending positions in the tile, made relative to the tensor's element `origin`.
    void spread(std::vector<std::uint32_t>& positions, std::uint64_t origin) const;
    /// Calls take(first, past) for the runs of the tensor's elements that it is made of, ascending.
    template <class Take>
    void each_run(Take&& take) const {
        const std::uint64_t end = first_element + band_elements;
        if (width == columns) {
            take(first_element, end);
            return;
        }
        for (std::uint64_t row = first_element / columns; row * columns < end; ++row) {
            const std::uint64_t start = row * columns + first_column;
            const std::uint64_t from = std::max(start, first_element);
            const std::uint64_t past = std::min(start + width, end);
            if (from < past) take(from, past);
        }
    }
    /// Copies the tile out of the band's bytes, side by side.
    void copy_out(std::span<const std::byte> band, unsigned element_bytes,
                  std::vector<std::byte>& out) const;
};

class TileGrid {
  public:
    TileGrid(const TensorInfo& tensor, const TensorCut& cut);

    std::uint64_t bands() const { return bands_; }
    std::uint64_t strips() const { return cut_.strips; }
    const TensorCut& cut() const { return cut_; }
    std::uint64_t count() const { return bands_ * cut_.strips; }
    /// By bands, and in each by strips.
    Tile operator[](std::uint64_t index) const;
    /// Which stretch of the file it lies in, of `slices` and one for tensors that are not cut.
    unsigned segment_of(std::uint64_t index, unsigned slices) const;

  private:
    TensorCut cut_;
    std::uint64_t elements_;
    std::uint64_t columns_;
    std::uint64_t bands_;
};

}  // namespace wisp
