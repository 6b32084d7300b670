#include "delta/compact_sealer.hpp"

#include <algorithm>
#include <utility>

#include "base/try.hpp"

namespace wisp {
namespace {

// A step of a model of some gigabytes need not go through a file twice.
constexpr std::size_t kSpooledInMemory = 16U << 20;

}  // namespace

CompactSealer::CompactSealer(const std::filesystem::path& output, const Schema& schema,
                             std::vector<Spool> segments, unsigned log2_block_elements,
                             unsigned slices)
    : DeltaSealer(output), schema_(schema), segments_(std::move(segments)) {
    directory_.log2_block_elements = log2_block_elements;
    directory_.slices = slices;
    if (!schema_.tensors().empty()) open_tensor(0);
}

Result<std::unique_ptr<DeltaSealer>> CompactSealer::create(const std::filesystem::path& output,
                                                           const Schema& schema,
                                                           unsigned log2_block_elements,
                                                           unsigned slices) {
    std::vector<Spool> segments;
    for (unsigned i = 0; i <= slices; ++i) {
        WISP_ASSIGN(Spool spool, Spool::create(folder_of(output), kSpooledInMemory / (slices + 1)));
        segments.push_back(std::move(spool));
    }
    return std::unique_ptr<DeltaSealer>(
        new CompactSealer(output, schema, std::move(segments), log2_block_elements, slices));
}

Result<void> CompactSealer::add(const EncodedBlock& block) {
    if (block.tensor != tensor_) {
        close_tensor();
        open_tensor(block.tensor);
    }
    open_.changed_elements += block.changed_elements;
    if (directory_.slices > 0) return add_tiles(block);
    open_.block_bytes.push_back(block.coded.size());
    return segments_.front().append(block.coded);
}

/// A block in which nothing changed comes without its tiles.
Result<void> CompactSealer::add_tiles(const EncodedBlock& block) {
    const TileGrid grid(schema_.tensors()[tensor_], open_.cut);
    const std::uint64_t first = open_.block_bytes.size();
    const std::uint64_t count = std::min(
        (open_.cut.strips << directory_.log2_block_elements) >> open_.cut.log2_band_elements,
        grid.count() - first);
    std::span<const std::byte> rest = block.coded;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t bytes =
            block.tile_bytes.empty() ? 0 : block.tile_bytes[static_cast<std::size_t>(i)];
        const auto tile = rest.first(static_cast<std::size_t>(bytes));
        rest = rest.subspan(tile.size());
        open_.block_bytes.push_back(bytes);
        open_.hashes.push_back(bytes == 0 ? TileHash{} : tile_hash(tile));
        WISP_TRY(segments_[grid.segment_of(first + i, directory_.slices)].append(tile));
    }
    return {};
}

void CompactSealer::open_tensor(std::size_t tensor) {
    tensor_ = tensor;
    if (directory_.slices > 0) {
        open_.cut = choose_cut(schema_.tensors()[tensor], directory_.slices);
    }
}

void CompactSealer::close_tensor() {
    DirectoryTensor closed = std::exchange(open_, {});
    if (closed.changed_elements == 0) return;
    closed.info = schema_.tensors()[tensor_];
    directory_.tensors.push_back(std::move(closed));
}

Result<CompactFrame> frame_compact(const DeltaDirectory& directory, std::uint64_t blocks_bytes,
                                   DeltaFacts& facts) {
    facts.changed_tensors = directory.tensors.size();
    facts.changed_elements = 0;
    for (const DirectoryTensor& tensor : directory.tensors) {
        facts.changed_elements += tensor.changed_elements;
    }
    WISP_ASSIGN(PackedDirectory packed, write_directory(directory));
    CompactFrame frame;
    frame.metadata = sealed_metadata(facts);
    frame.metadata["format"] = kDeltaFormat;
    frame.metadata["version"] = kDeltaVersion;
    frame.metadata["codec"] = name_of(facts.codec);
    frame.metadata["step"] = std::to_string(facts.step);
    frame.metadata["total_elements"] = std::to_string(facts.total_elements);
    frame.metadata["changed_elements"] = std::to_string(facts.changed_elements);
    frame.metadata["sparsity"] = sparsity_text(facts.changed_elements, facts.total_elements);
    frame.metadata[std::string(kDirectorySizeKey)] = std::to_string(packed.plain_bytes);
    const std::uint64_t directory_bytes = packed.bytes.size();
    const std::uint64_t end = blocks_bytes + directory_bytes;
    if (directory.slices > 0) {
        frame.metadata[std::string(kSlicesKey)] = std::to_string(directory.slices);
        frame.entries = {
            {{std::string(kDirectoryTensor), Dtype::kU8, {directory_bytes}}, 0, directory_bytes},
            {{std::string(kBlocksTensor), Dtype::kU8, {blocks_bytes}}, directory_bytes, end}};
    } else {
        frame.entries = {
            {{std::string(kBlocksTensor), Dtype::kU8, {blocks_bytes}}, 0, blocks_bytes},
            {{std::string(kDirectoryTensor), Dtype::kU8, {directory_bytes}}, blocks_bytes, end}};
    }
    frame.directory = std::move(packed.bytes);
    return frame;
}

Result<SealedObject> CompactSealer::finish(DeltaFacts& facts) {
    close_tensor();
    std::uint64_t blocks_bytes = 0;
    for (const Spool& segment : segments_) blocks_bytes += segment.size_bytes();
    WISP_ASSIGN(CompactFrame frame, frame_compact(directory_, blocks_bytes, facts));
    return write_file(frame.entries, std::move(frame.metadata), blocks_bytes,
                      [&](const Sink& sink) -> Result<void> {
                          if (directory_.slices > 0) WISP_TRY(sink(frame.directory));
                          for (Spool& segment : segments_) WISP_TRY(segment.drain(sink));
                          return directory_.slices > 0 ? Result<void>() : sink(frame.directory);
                      });
}

}  // namespace wisp
