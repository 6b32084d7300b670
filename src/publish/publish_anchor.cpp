// When a whole state is published, and how.
#include <fmt/format.h>

#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/file_name.hpp"
#include "delta/delta_writer.hpp"
#include "follow/fetch_plan.hpp"
#include "follow/replica_updater.hpp"
#include "log/manifest.hpp"
#include "publish/run_writer.hpp"

namespace wisp {
namespace fs = std::filesystem;

/// After how much a late joiner would have to read beyond the newest anchor another one is due.
bool RunWriter::anchor_due() const {
    if (manifest_.anchors.empty()) return true;
    const AnchorEntry& newest = manifest_.anchors.back();
    const StateName& now = head_->commit.state;
    if (newest.state.seq == now.seq) return false;
    if (head_->commit.rewind_from && head_->commit.makes_state()) return true;
    if (options_.anchor_every > 0)
        return now.state_index - newest.state.state_index >= options_.anchor_every;
    FetchPlanRequest joiner;
    joiner.target = now;
    joiner.floor = head_->commit.floor;
    joiner.base = newest.base;
    const auto plan = plan_fetch(manifest_, joiner);
    if (!plan || !plan->anchor) return true;
    // An anchor costs its own bytes once; it is worth them when every joiner would read as much.
    return plan->bytes - plan->anchor->bytes() > newest.bytes();
}

Result<std::optional<AnchorEntry>> RunWriter::upload_public_anchor(const Weights& source,
                                                                   std::uint64_t step,
                                                                   std::uint64_t epoch) {
    if (!options_.public_base) return std::optional<AnchorEntry>{};
    WISP_ASSIGN(const Checkpoint base, Checkpoint::open(*options_.public_base));
    if (base.schema().digest() != source.schema().digest()) return std::optional<AnchorEntry>{};
    const OwnedFile delta(new_file("anchor"));
    DiffOptions options;
    options.threads = options_.threads;
    options.step = step;
    WISP_ASSIGN(const DiffReport diff, diff_weights(base, source, delta.path(), options));
    AnchorEntry anchor;
    anchor.base = diff.base;
    anchor.base_name = options_.public_base_name;
    const auto name_key = [&](std::string_view hash, PartNumber part) {
        return anchor_key({step, epoch, hash, part});
    };
    WISP_ASSIGN(StoredFile file, uploader_.upload(delta.path(), "", name_key));
    anchor.files.push_back(std::move(file));
    return anchor;
}

Result<AnchorEntry> RunWriter::upload_anchor(const Weights& source, std::uint64_t step,
                                             std::uint64_t epoch) {
    WISP_ASSIGN(auto by_base, upload_public_anchor(source, step, epoch));
    AnchorEntry anchor;
    if (by_base) {
        anchor = std::move(*by_base);
    } else {
        OwnedFile written;
        std::vector<CheckpointSource> files;
        if (const auto* checkpoint = dynamic_cast<const Checkpoint*>(&source)) {
            WISP_ASSIGN(files, files_of(*checkpoint));
        } else {
            written = OwnedFile(new_file("anchor"));
            WISP_TRY(write_weights(source, written.path(), options_.metadata));
            files.push_back({written.path(), "model.safetensors", true});
        }
        for (const CheckpointSource& file : files) {
            const auto name_key = [&](std::string_view hash, PartNumber part) {
                const ObjectName object{step, epoch, hash, part};
                return file.weights ? anchor_key(object) : side_file_key(object);
            };
            WISP_ASSIGN(StoredFile stored, uploader_.upload(file.path, file.name, name_key));
            anchor.files.push_back(std::move(stored));
        }
        WISP_TRY(upload_side_files(step, epoch, anchor));
    }
    anchor.schema = source.schema().digest();
    return anchor;
}

Result<void> RunWriter::upload_side_files(std::uint64_t step, std::uint64_t epoch,
                                          AnchorEntry& anchor) {
    for (const fs::path& side : options_.side_files) {
        const std::string name = side.filename().string();
        if (!is_file_name(name)) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("the side file {} has a name that not every machine can take "
                                    "over",
                                    shown(name)));
        }
        const auto name_key = [&](std::string_view hash, PartNumber part) {
            return side_file_key({step, epoch, hash, part});
        };
        WISP_ASSIGN(StoredFile stored, uploader_.upload(side, name, name_key));
        anchor.files.push_back(std::move(stored));
    }
    return {};
}

void RunWriter::anchor_if_due(const Weights& source, PublishReport& report) {
    if (report.kind == "present" || needs_reconcile_ || !anchor_due()) return;
    const auto publish = [&]() -> Result<void> {
        WISP_ASSIGN(AnchorEntry anchor, upload_anchor(source, head_->commit.state.step, epoch_));
        const UploadCounts counts = uploader_.take_counts();
        report.uploaded_bytes += counts.uploaded_bytes;
        report.reused_bytes += counts.reused_bytes;
        return place_anchor(std::move(anchor), report);
    };
    // The step stands whatever becomes of its anchor. One that was fenced learns it again, for
    // good, at its next commit.
    if (auto anchored = publish(); !anchored) report.anchor_failure = std::move(anchored).error();
}

Result<void> RunWriter::place_anchor(AnchorEntry anchor, PublishReport& report) {
    const StateName state = head_->commit.state;
    anchor.state = state;
    WISP_TRY(append_beside(draft(CommitKind::kAnchor), [&](Commit& placed, std::uint64_t) {
        placed.manifest = manifest_;
        add_anchor(*placed.manifest, anchor);
        thin(*placed.manifest);
        placed.anchor_seq = state.seq;
    }));
    {
        const std::lock_guard lock(baseline_mutex_);
        WISP_TRY(note_head());
    }
    report.anchored = true;
    report.anchor_bytes = anchor.bytes();
    return {};
}

}  // namespace wisp
