#include "delta/tile_encoder.hpp"

#include <algorithm>

#include "codec/dense_decoder.hpp"
#include "delta/delta_directory.hpp"
#include "kernel/kernels.hpp"

namespace wisp {
namespace {

/// Of so many elements one change in 64 takes less room than all elements, whatever it is: what is
/// coded then is the list, and the old block is not looked at.
constexpr std::uint64_t kListedElements = 4096;
constexpr std::uint64_t kListedPerChange = 64;

void append_tile(const TouchedSums& touched, const Bytes& coded, WrittenBlock& written) {
    if (coded.empty()) {
        written.encoded.tile_bytes.push_back(0);
        return;
    }
    Bytes& out = written.encoded.coded;
    append_fixed(out, touched.before.a);
    append_fixed(out, touched.after.a);
    out.insert(out.end(), coded.begin(), coded.end());
    written.encoded.tile_bytes.push_back(kTileProofBytes + coded.size());
}

void append_change(BlockChanges& to, std::uint32_t position, const BlockChanges& from,
                   std::size_t i) {
    const std::size_t width = from.element_bytes;
    const auto bits = [&](const Bytes& all) { return std::span(all).subspan(i * width, width); };
    to.positions.push_back(position);
    const auto before = bits(from.old_bits);
    const auto after = bits(from.new_bits);
    to.old_bits.insert(to.old_bits.end(), before.begin(), before.end());
    to.new_bits.insert(to.new_bits.end(), after.begin(), after.end());
}

/// The changes of one band, by the strip they lie in; positions are the block's.
std::vector<BlockChanges> by_strips(const BlockChanges& changes, std::size_t from, std::size_t to,
                                    const BlockRange& range, std::uint64_t strips,
                                    std::uint64_t columns) {
    std::vector<BlockChanges> parts(static_cast<std::size_t>(strips));
    for (BlockChanges& part : parts) part.element_bytes = changes.element_bytes;
    const std::uint64_t width = columns / strips;
    for (std::size_t i = from; i < to; ++i) {
        const std::uint64_t element = range.first_element + changes.positions[i];
        const std::uint64_t strip = strips == 1 ? 0 : element % columns / width;
        append_change(parts[static_cast<std::size_t>(strip)], changes.positions[i], changes, i);
    }
    return parts;
}

/// Codes what changes in one tile; on return `part` has the tile's own positions.
void encode_tile(const Tile& tile, std::span<const std::byte> band, const DtypeTraits& traits,
                 const BlockRange& range, BlockChanges& part, WriteWorker& worker, Bytes& coded) {
    const std::uint64_t elements = tile.element_count();
    const std::uint64_t before = tile.count_before(tile.first_element);
    for (std::uint32_t& position : part.positions) {
        position =
            static_cast<std::uint32_t>(tile.count_before(range.first_element + position) - before);
    }
    std::span<const std::byte> old_tile = band;
    const bool listed = elements >= kListedElements && part.count() < elements / kListedPerChange;
    if (tile.width != tile.columns && listed) {
        old_tile = band.first(static_cast<std::size_t>(elements * traits.element_bytes));
    } else if (tile.width != tile.columns) {
        tile.copy_out(band, traits.element_bytes, worker.tile);
        old_tile = worker.tile;
    }
    worker.swift.encode(old_tile, part, traits, coded);
}

}  // namespace

WrittenBlock encode_tiled_changes(const TensorInfo& tensor, const TensorCut& cut,
                                  const BlockRange& range, std::span<const std::byte> old_block,
                                  const BlockChanges& changes, const TensorSeed& seed,
                                  WriteWorker& worker, bool keep_changes) {
    WrittenBlock written;
    written.encoded.tensor = range.tensor;
    written.encoded.changed_elements = changes.count();
    if (changes.empty()) return written;
    const TileGrid grid(tensor, cut);
    const DtypeTraits& traits = traits_of(tensor.dtype);
    const std::uint64_t end = range.first_element + range.element_count;
    std::size_t from = 0;
    Bytes coded;
    for (std::uint64_t band = range.first_element >> cut.log2_band_elements;
         band << cut.log2_band_elements < end; ++band) {
        const Tile whole = grid[band * cut.strips];
        const std::uint64_t past = whole.first_element + whole.band_elements - range.first_element;
        const auto to = static_cast<std::size_t>(std::ranges::lower_bound(changes.positions, past) -
                                                 changes.positions.begin());
        auto parts = by_strips(changes, from, to, range, cut.strips, whole.columns);
        const auto old_band =
            old_block.subspan(static_cast<std::size_t>((whole.first_element - range.first_element) *
                                                       traits.element_bytes),
                              static_cast<std::size_t>(whole.band_elements * traits.element_bytes));
        for (std::size_t strip = 0; strip < parts.size(); ++strip) {
            const TouchedSums touched =
                touched_sums(old_block, parts[strip], seed, range.first_word());
            coded.clear();
            if (!parts[strip].empty()) {
                encode_tile(grid[band * cut.strips + strip], old_band, traits, range, parts[strip],
                            worker, coded);
            }
            append_tile(touched, coded, written);
            written.touched += touched;
        }
        from = to;
    }
    if (keep_changes) written.changes = changes;
    return written;
}

namespace {

/// What differs between two states of a tile, whose runs lie in `old_block` and `new_block`.
Comparison compare_tile(const Tile& tile, const BlockRange& range,
                        std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                        const TensorSeed& seed) {
    Comparison all;
    const unsigned width = range.element_bytes;
    tile.each_run([&](std::uint64_t first, std::uint64_t past) {
        const auto at = static_cast<std::size_t>((first - range.first_element) * width);
        const Comparison run = active_kernels().compare(
            old_block.data() + at, new_block.data() + at, static_cast<std::size_t>(past - first),
            width, seed, first * width / 8);
        all.changed += run.changed;
        all.touched += run.touched;
        all.old_state += run.old_state;
    });
    return all;
}

/// Strips of a block of which so much changed that there is no list of it.
WrittenBlock encode_dense_tiles(const TensorInfo& tensor, const TensorCut& cut,
                                const BlockRange& range, std::span<const std::byte> old_block,
                                std::span<const std::byte> new_block, const TensorSeed& seed,
                                WriteWorker& worker, bool keep_changes) {
    WrittenBlock written;
    written.encoded.tensor = range.tensor;
    written.changes.element_bytes = range.element_bytes;
    if (keep_changes) compare_blocks(old_block, new_block, written.changes);
    const TileGrid grid(tensor, cut);
    const DtypeTraits& traits = traits_of(tensor.dtype);
    const std::uint64_t first = (range.first_element >> cut.log2_band_elements) * cut.strips;
    const std::uint64_t bands = block_count_of(range.element_count, cut.log2_band_elements);
    Bytes coded;
    for (std::uint64_t i = first; i < first + bands * cut.strips; ++i) {
        const Tile tile = grid[i];
        const Comparison found = compare_tile(tile, range, old_block, new_block, seed);
        coded.clear();
        if (found.changed > 0) {
            const auto at = static_cast<std::size_t>((tile.first_element - range.first_element) *
                                                     range.element_bytes);
            tile.copy_out(old_block.subspan(at), range.element_bytes, worker.tile);
            tile.copy_out(new_block.subspan(at), range.element_bytes, worker.new_tile);
            worker.swift.encode_dense(worker.tile, worker.new_tile, traits, coded);
        }
        append_tile(found.touched, coded, written);
        written.touched += found.touched;
        written.old_state += found.old_state;
        written.encoded.changed_elements += found.changed;
    }
    return written;
}

}  // namespace

WrittenBlock encode_tiles(const TensorInfo& tensor, const TensorCut& cut, const BlockRange& range,
                          std::span<const std::byte> old_block,
                          std::span<const std::byte> new_block, const TensorSeed& seed,
                          WriteWorker& worker, bool keep_changes) {
    if (cut.strips > 1 && SwiftEncoder::is_dense(old_block, new_block, range.element_bytes)) {
        return encode_dense_tiles(tensor, cut, range, old_block, new_block, seed, worker,
                                  keep_changes);
    }
    if (cut.strips > 1) {
        worker.detector.detect(old_block, new_block, range, seed, true, worker.found);
        const StateDigest old_state = worker.found.old_state;
        WrittenBlock written = encode_tiled_changes(
            tensor, cut, range, old_block, worker.found.changes, seed, worker, keep_changes);
        written.old_state = old_state;
        return written;
    }
    // A band is a smaller block.
    WrittenBlock written;
    written.encoded.tensor = range.tensor;
    written.changes.element_bytes = range.element_bytes;
    BlockRange band = range;
    const std::uint64_t most = std::uint64_t{1} << cut.log2_band_elements;
    for (std::uint64_t at = 0; at < range.element_count; at += most) {
        band.first_element = range.first_element + at;
        band.element_count = std::min(most, range.element_count - at);
        const auto part_of = [&](std::span<const std::byte> block) {
            return block.subspan(
                static_cast<std::size_t>(at * range.element_bytes),
                static_cast<std::size_t>(band.element_count * range.element_bytes));
        };
        WrittenBlock part = encode_block(Codec::kSwift, tensor, band, part_of(old_block),
                                         part_of(new_block), seed, worker, keep_changes);
        append_tile(part.touched, part.encoded.coded, written);
        written.touched += part.touched;
        written.old_state += part.old_state;
        written.encoded.changed_elements += part.encoded.changed_elements;
        for (std::uint32_t& position : part.changes.positions) {
            position += static_cast<std::uint32_t>(at);
        }
        const auto append = [](auto& to, const auto& from) {
            to.insert(to.end(), from.begin(), from.end());
        };
        append(written.changes.positions, part.changes.positions);
        append(written.changes.new_bits, part.changes.new_bits);
    }
    return written;
}

}  // namespace wisp
