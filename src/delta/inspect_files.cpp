#include <fmt/format.h>

#include <algorithm>

#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "codec/block_layout.hpp"
#include "delta/delta_chain.hpp"
#include "delta/delta_writer.hpp"
#include "wisp/delta.hpp"
#include "wisp/inspect.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

StoredBlockKind kind_of(std::span<const std::byte> block) {
    if (block.empty()) return StoredBlockKind::kUnchanged;
    switch (static_cast<BlockKind>(block[0])) {
        case BlockKind::kSparse: return StoredBlockKind::kSparse;
        case BlockKind::kRaw: return StoredBlockKind::kRaw;
        case BlockKind::kSplit: return StoredBlockKind::kSplit;
        case BlockKind::kSwift: return StoredBlockKind::kSwift;
        case BlockKind::kSteps: return StoredBlockKind::kSteps;
    }
    return StoredBlockKind::kUnknown;
}

FileReport report_delta(const VerifiedDelta& delta) {
    FileReport report;
    report.codec = delta.facts().codec;
    report.foreign = !delta.sealed();
    report.file_bytes = delta.file_bytes();
    report.payload_bytes = delta.payload_bytes();
    report.total_elements = delta.facts().total_elements;
    report.changed_elements = delta.facts().changed_elements;
    report.step = delta.facts().step;
    report.metadata = delta.metadata();
    if (delta.sealed()) {
        report.base = delta.facts().base;
        report.result = delta.facts().result;
        report.schema_digest = delta.facts().schema_digest;
    }
    for (const DeltaTensor& tensor : delta.tensors()) {
        TensorReport row;
        row.tensor = tensor.info;
        row.element_count = tensor.shape_known ? element_count_of(tensor.info) : 0;
        row.changed_elements = tensor.changed_elements;
        row.stored_bytes = tensor.stored_bytes;
        for (const auto& block : tensor.blocks) ++row.block_kinds[kind_of(block)];
        report.tensors.push_back(std::move(row));
    }
    return report;
}

FileReport report_checkpoint(const Checkpoint& checkpoint) {
    FileReport report;
    for (const CheckpointFile& file : checkpoint.files()) report.file_bytes += file.size_bytes;
    report.payload_bytes = checkpoint.schema().total_bytes();
    report.total_elements = checkpoint.schema().total_elements();
    report.metadata = checkpoint.metadata();
    report.schema_digest = checkpoint.schema().digest();
    for (std::size_t i = 0; i < checkpoint.schema().tensors().size(); ++i) {
        TensorReport row;
        row.tensor = checkpoint.schema().tensors()[i];
        row.element_count = element_count_of(row.tensor);
        row.stored_bytes = checkpoint.place(i).size_bytes;
        report.tensors.push_back(std::move(row));
    }
    return report;
}

Result<bool> is_checkpoint(const fs::path& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) return true;
    WISP_ASSIGN(const MappedFile file, MappedFile::open(path));
    WISP_ASSIGN(const SafetensorsHeader header, parse_safetensors(file.bytes(), path.string()));
    return form_of(header) == FileForm::kCheckpoint;
}

}  // namespace

std::string_view name_of(StoredBlockKind kind) {
    switch (kind) {
        case StoredBlockKind::kRaw: return "raw";
        case StoredBlockKind::kSparse: return "sparse";
        case StoredBlockKind::kSplit: return "split";
        case StoredBlockKind::kSteps: return "steps";
        case StoredBlockKind::kSwift: return "swift";
        case StoredBlockKind::kUnchanged: return "unchanged";
        case StoredBlockKind::kUnknown: return "unknown";
    }
    return "unknown";
}

Result<FileReport> inspect(const fs::path& file, const Progress& progress) {
    WISP_ASSIGN(const bool checkpoint, is_checkpoint(file));
    if (checkpoint) {
        WISP_ASSIGN(const Checkpoint opened, Checkpoint::open(file));
        return report_checkpoint(opened);
    }
    WISP_ASSIGN(const VerifiedDelta delta, verify_delta_file(file, progress));
    return report_delta(delta);
}

Result<VerifyReport> verify(const fs::path& file, const std::optional<fs::path>& base_path,
                            unsigned asked_threads, const Progress& progress) {
    VerifyReport report;
    const unsigned threads = thread_count(asked_threads);
    WISP_ASSIGN(report.file, inspect(file, progress));
    if (!report.file.is_delta()) {
        WISP_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(file));
        WISP_ASSIGN(report.state, digest_of(checkpoint, threads, progress));
        return report;
    }
    if (!base_path) return report;
    WISP_ASSIGN(const Checkpoint base, Checkpoint::open(*base_path));
    const Schema& schema = base.schema();
    WISP_ASSIGN(const DeltaChain chain, DeltaChain::open({file}, schema));
    const BlockGrid grid(schema, chain.log2_block_elements());
    std::vector<ChainWorker> workers(threads);
    ChainSums sums;
    std::uint64_t done = 0;
    auto ran = ordered_parallel<ChainSums>(
        grid.count(), threads,
        [&](std::uint64_t index, unsigned thread) -> Result<ChainSums> {
            const BlockRange range = grid[index];
            const auto old_block = range.of(base.bytes(range.tensor));
            ChainSums part;
            WISP_TRY(chain.run(range, old_block, workers[thread], part));
            part.base = active_kernels().mix_bytes(old_block.data(), old_block.size(),
                                                   chain.seed(range.tensor), range.first_word());
            return part;
        },
        [&](std::uint64_t index, ChainSums part) -> Result<void> {
            sums.add(part);
            const BlockRange range = grid[index];
            done += range.element_count * range.element_bytes;
            if (progress) progress("verify", done, schema.total_bytes());
            return {};
        });
    if (!ran) return std::unexpected(chain.explain(std::move(ran).error(), base, threads));
    WISP_ASSIGN(const DeltaChain::Proof proof, chain.prove(sums.base, sums));
    report.decoded = true;
    report.base_matches = proof.base_proven;
    report.result_matches = proof.result_proven;
    report.state = proof.result;
    return report;
}

}  // namespace wisp
