// A whole state into the bucket: as the files of a checkpoint, as a delta from a public one, or, in
// a sliced run, as a sliced delta from zeros.
#include <fmt/format.h>

#include "base/file.hpp"
#include "base/try.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/zeroed_files.hpp"
#include "delta/diff_weights.hpp"
#include "publish/step_publisher.hpp"

namespace wisp {

/// False without a public base, or with one of another schema.
Result<bool> StepPublisher::upload_over_base(const Weights& source, std::uint64_t step,
                                             std::uint64_t epoch, AnchorEntry& anchor) {
    if (!options_.public_base) return false;
    WISP_ASSIGN(const Checkpoint base, Checkpoint::open(*options_.public_base));
    if (base.schema().digest() != anchor.schema) return false;
    const OwnedFile delta(writer_->new_file("anchor"));
    DiffOptions options = diff_options(source.schema(), step);
    options.progress = {};
    WISP_ASSIGN(const DiffReport diff, diff_weights(base, source, delta.path(), options));
    anchor.base = diff.base;
    anchor.base_name = options_.public_base_name;
    WISP_ASSIGN(StoredFile file,
                writer_->uploader().upload(delta.path(), "", anchor_key, step, epoch));
    anchor.files.push_back(std::move(file));
    return true;
}

Result<AnchorEntry> StepPublisher::upload_anchor(const Weights& source, std::uint64_t step,
                                                 std::uint64_t epoch) {
    AnchorEntry anchor;
    anchor.schema = source.schema().digest();
    WISP_ASSIGN(const bool over_base, upload_over_base(source, step, epoch, anchor));
    if (over_base) return anchor;
    anchor.sliced = slices_of(writer_->log().record(), source.schema().total_bytes()) > 0;
    if (anchor.sliced) {
        WISP_TRY(upload_sliced(source, step, epoch, anchor));
    } else {
        WISP_TRY(upload_whole(source, step, epoch, anchor));
    }
    WISP_TRY(writer_->upload_side_files(step, epoch, anchor));
    return anchor;
}

Result<void> StepPublisher::upload_whole(const Weights& source, std::uint64_t step,
                                         std::uint64_t epoch, AnchorEntry& anchor) {
    OwnedFile written;
    std::vector<CheckpointSource> files;
    if (const auto* checkpoint = dynamic_cast<const Checkpoint*>(&source)) {
        WISP_ASSIGN(files, files_of(*checkpoint));
    } else {
        written = OwnedFile(writer_->new_file("anchor"));
        WISP_TRY(write_weights(source, written.path(), options_.metadata));
        files.push_back({written.path(), "model.safetensors", true});
    }
    for (const CheckpointSource& file : files) {
        const auto name_key = file.weights ? anchor_key : side_file_key;
        WISP_ASSIGN(StoredFile stored,
                    writer_->uploader().upload(file.path, file.name, name_key, step, epoch));
        anchor.files.push_back(std::move(stored));
    }
    return {};
}

/// The weights as a delta; of the files that hold them only the headers, so that a replica that
/// joins lays them out as they are here.
Result<void> StepPublisher::upload_sliced(const Weights& source, std::uint64_t step,
                                          std::uint64_t epoch, AnchorEntry& anchor) {
    const OwnedFile delta(writer_->new_file("anchor"));
    DiffOptions options = diff_options(source.schema(), step);
    options.progress = {};
    WISP_ASSIGN(const ZeroWeights zeros, ZeroWeights::make(source.schema()));
    WISP_TRY(diff_weights(zeros, source, delta.path(), options));
    WISP_ASSIGN(StoredFile stored,
                writer_->uploader().upload(delta.path(), "", anchor_key, step, epoch));
    anchor.files.push_back(std::move(stored));
    const auto* checkpoint = dynamic_cast<const Checkpoint*>(&source);
    if (checkpoint == nullptr) {
        const WeightsLayout layout = weights_layout(source.schema(), options_.metadata);
        return upload_header(layout.header, "model.safetensors", step, epoch, anchor);
    }
    WISP_ASSIGN(const auto files, files_of(*checkpoint));
    for (const CheckpointSource& file : files) {
        if (file.weights) {
            WISP_ASSIGN(const Bytes header, read_header(file.path));
            WISP_TRY(upload_header(header, file.name, step, epoch, anchor));
            continue;
        }
        WISP_ASSIGN(StoredFile side,
                    writer_->uploader().upload(file.path, file.name, side_file_key, step, epoch));
        anchor.files.push_back(std::move(side));
    }
    return {};
}

Result<void> StepPublisher::upload_header(const Bytes& header, const std::string& name,
                                          std::uint64_t step, std::uint64_t epoch,
                                          AnchorEntry& anchor) {
    const OwnedFile file(writer_->new_file("header"));
    WISP_ASSIGN(PendingFile pending, PendingFile::create(file.path()));
    WISP_TRY(pending.append(header));
    WISP_TRY(pending.commit_unsynced());
    WISP_ASSIGN(StoredFile stored,
                writer_->uploader().upload(file.path(), name, side_file_key, step, epoch));
    anchor.files.push_back(std::move(stored));
    return {};
}

}  // namespace wisp
