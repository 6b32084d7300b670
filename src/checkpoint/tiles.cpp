#include "checkpoint/tiles.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "checkpoint/blocks.hpp"
#include "wisp/weights.hpp"

namespace wisp {
namespace {

// A tile costs some fifty bytes of its own. With fewer elements that is felt in what a host fetches
// (bench/slices.cpp); with more, small matrices could not be cut in two.
constexpr unsigned kLog2LeastTile = 17;

/// Layers whose input is what engines split among their ranks: the last axis.
constexpr std::array<std::string_view, 9> kSplitByColumns = {
    "o_proj", "down_proj", "out_proj", "c_proj", "wo", "w2", "fc2", "dense_4h_to_h", "linear_2"};

bool is_split_by_columns(std::string_view name) {
    while (!name.empty()) {
        const std::size_t dot = name.rfind('.');
        const std::string_view last = dot == std::string_view::npos ? name : name.substr(dot + 1);
        if (std::ranges::find(kSplitByColumns, last) != kSplitByColumns.end()) return true;
        if (last != "weight" && last != "weight_scale" && last != "weight_scale_inv") return false;
        name = dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
    }
    return false;
}

}  // namespace

bool can_cut(const TensorInfo& tensor, const TensorCut& cut) {
    if (cut.strips == 1) return true;
    if (cut.strips == 0 || tensor.shape.size() < 2 || traits_of(tensor.dtype).bits < 8)
        return false;
    const std::uint64_t columns = tensor.shape.back();
    const unsigned width = traits_of(tensor.dtype).element_bytes;
    return columns % cut.strips == 0 && columns / cut.strips * width % 8 == 0;
}

TensorCut choose_cut(const TensorInfo& tensor, unsigned slices) {
    TensorCut cut{kLog2BlockElements, 1};
    const std::uint64_t elements = element_count_of(tensor);
    // Stacked experts are cut by rows or by columns, as their layout has it: both ways help.
    const bool stacked = tensor.shape.size() > 2;
    if (stacked || is_split_by_columns(tensor.name)) {
        const std::uint64_t bands =
            std::max<std::uint64_t>(1, block_count_of(elements, kLog2BlockElements));
        for (cut.strips = std::bit_floor(slices);
             cut.strips > 1 &&
             (!can_cut(tensor, cut) || elements / (bands * cut.strips) >> kLog2LeastTile == 0);
             cut.strips /= 2) {
        }
        if (cut.strips > 1 || stacked) return cut;
    }
    const std::uint64_t share = std::max<std::uint64_t>(1, elements / slices);
    const auto log2 = static_cast<unsigned>(std::bit_width(share)) - 1;
    cut.log2_band_elements = std::clamp(log2, kLog2LeastTile, kLog2BlockElements);
    return cut;
}

void Tile::spread(std::vector<std::uint32_t>& positions, std::uint64_t origin) const {
    if (width == columns) {
        const auto shift = static_cast<std::uint32_t>(first_element - origin);
        if (shift == 0) return;
        for (std::uint32_t& position : positions) position += shift;
        return;
    }
    // They ascend, so that rows are counted up instead of divided out.
    std::uint64_t at = count_before(first_element);
    std::uint64_t column = at % width;
    std::uint64_t row_start = at / width * columns + first_column - origin;
    std::uint64_t before = 0;
    for (std::uint32_t& position : positions) {
        column += position - before;
        before = position;
        if (column >= width) {
            row_start += column / width * columns;
            column %= width;
        }
        position = static_cast<std::uint32_t>(row_start + column);
    }
}

void Tile::copy_out(std::span<const std::byte> band, unsigned element_bytes,
                    std::vector<std::byte>& out) const {
    out.resize(static_cast<std::size_t>(element_count() * element_bytes));
    std::byte* to = out.data();
    each_run([&](std::uint64_t from, std::uint64_t past) {
        const auto bytes = static_cast<std::size_t>((past - from) * element_bytes);
        std::memcpy(to, band.data() + (from - first_element) * element_bytes, bytes);
        to += bytes;
    });
}

TileGrid::TileGrid(const TensorInfo& tensor, const TensorCut& cut)
    : cut_(cut),
      elements_(element_count_of(tensor)),
      columns_(cut.strips > 1 ? tensor.shape.back() : 1),
      bands_(block_count_of(elements_, cut.log2_band_elements)) {}

Tile TileGrid::operator[](std::uint64_t index) const {
    Tile tile;
    tile.first_element = index / cut_.strips << cut_.log2_band_elements;
    tile.band_elements =
        std::min(std::uint64_t{1} << cut_.log2_band_elements, elements_ - tile.first_element);
    tile.columns = columns_;
    tile.width = columns_ / cut_.strips;
    tile.first_column = index % cut_.strips * tile.width;
    return tile;
}

unsigned TileGrid::segment_of(std::uint64_t index, unsigned slices) const {
    if (count() <= 1) return 0;
    const std::uint64_t at = cut_.strips > 1 ? index % cut_.strips : index;
    const std::uint64_t of = cut_.strips > 1 ? cut_.strips : bands_;
    // Both are below 2^58, and slices below 2^6.
    return 1 + static_cast<unsigned>(at * slices / of);
}

}  // namespace wisp
