#include "seal/compact_sealer.hpp"

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

Result<SealedObject> CompactSealer::finish(DeltaFacts& facts) {
    close_tensor();
    facts.changed_tensors = directory_.tensors.size();
    facts.changed_elements = 0;
    for (const DirectoryTensor& tensor : directory_.tensors) {
        facts.changed_elements += tensor.changed_elements;
    }
    WISP_ASSIGN(const PackedDirectory directory, write_directory(directory_));

    Metadata metadata = sealed_metadata(facts);
    metadata["format"] = kDeltaFormat;
    metadata["version"] = kDeltaVersion;
    metadata["codec"] = name_of(facts.codec);
    metadata["step"] = std::to_string(facts.step);
    metadata["total_elements"] = std::to_string(facts.total_elements);
    metadata["changed_elements"] = std::to_string(facts.changed_elements);
    metadata["sparsity"] = sparsity_text(facts.changed_elements, facts.total_elements);
    metadata[std::string(kDirectorySizeKey)] = std::to_string(directory.plain_bytes);

    const std::uint64_t middle = blocks_.size_bytes();
    const std::uint64_t end = middle + directory.bytes.size();
    const std::vector<SafetensorsEntry> entries = {
        {{std::string(kBlocksTensor), Dtype::kU8, {middle}}, 0, middle},
        {{std::string(kDirectoryTensor), Dtype::kU8, {end - middle}}, middle, end}};
    return write_file(entries, std::move(metadata), middle, [&](const Sink& sink) -> Result<void> {
        WISP_TRY(blocks_.drain(sink));
        return sink(directory.bytes);
    });
}

}  // namespace wisp
