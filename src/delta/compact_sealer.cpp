#include "delta/compact_sealer.hpp"

#include <utility>

#include "base/try.hpp"

namespace wisp {

CompactSealer::CompactSealer(const std::filesystem::path& output, const Schema& schema, Spool spool,
                             unsigned log2_block_elements)
    : DeltaSealer(output), schema_(schema), blocks_(std::move(spool)) {
    directory_.log2_block_elements = log2_block_elements;
}

Result<std::unique_ptr<DeltaSealer>> CompactSealer::create(const std::filesystem::path& output,
                                                           const Schema& schema,
                                                           unsigned log2_block_elements) {
    WISP_ASSIGN(Spool spool, Spool::create(folder_of(output)));
    return std::unique_ptr<DeltaSealer>(
        new CompactSealer(output, schema, std::move(spool), log2_block_elements));
}

Result<void> CompactSealer::add(const EncodedBlock& block) {
    if (block.tensor != tensor_) {
        close_tensor();
        tensor_ = block.tensor;
    }
    open_.changed_elements += block.changed_elements;
    open_.block_bytes.push_back(block.coded.size());
    return blocks_.append(block.coded);
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
    const std::uint64_t end = blocks_bytes + packed.bytes.size();
    frame.entries = {
        {{std::string(kBlocksTensor), Dtype::kU8, {blocks_bytes}}, 0, blocks_bytes},
        {{std::string(kDirectoryTensor), Dtype::kU8, {end - blocks_bytes}}, blocks_bytes, end}};
    frame.directory = std::move(packed.bytes);
    return frame;
}

Result<SealedObject> CompactSealer::finish(DeltaFacts& facts) {
    close_tensor();
    const std::uint64_t blocks_bytes = blocks_.size_bytes();
    WISP_ASSIGN(CompactFrame frame, frame_compact(directory_, blocks_bytes, facts));
    return write_file(frame.entries, std::move(frame.metadata), blocks_bytes,
                      [&](const Sink& sink) -> Result<void> {
                          WISP_TRY(blocks_.drain(sink));
                          return sink(frame.directory);
                      });
}

}  // namespace wisp
