#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "delta/delta_layout.hpp"
#include "delta/diff_weights.hpp"
#include "log/run_keys.hpp"
#include "trl/trl_replay.hpp"
#include "wisp/control.hpp"
#include "wisp/trl_layout.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

// What is larger is sent in parts, which no store creates exclusively.
constexpr std::uint64_t kLargestCreated = std::uint64_t{1} << 30;
constexpr std::size_t kCompareBytes = 16 << 20;

Metadata anchor_metadata(const Schema& schema, std::uint64_t step, const StateDigest& state) {
    std::vector<std::string> names;
    for (const TensorInfo& tensor : schema.tensors()) names.push_back(tensor.name);
    const std::string elements = std::to_string(schema.total_elements());
    return {{"format", std::string(kTrlFormat)},
            {"version", std::string(kTrlVersion)},
            {"sparse", "False"},
            {"model_version", std::to_string(step)},
            {"num_changed_params", std::to_string(names.size())},
            {"total_changed_elements", elements},
            {"total_elements", elements},
            {"sparsity", sparsity_text(schema.total_elements(), schema.total_elements())},
            {"changed_params", python_list(names)},
            {std::string(kTrlStateKey), to_text(state)}};
}

/// What the bucket ends with.
struct Newest {
    std::optional<std::uint64_t> step;
    std::optional<std::uint64_t> anchor;
    std::uint64_t deltas_since = 0;  // the newest anchor
};

Result<Newest> find_newest(TrlBucket& bucket) {
    Newest newest;
    WISP_ASSIGN(const auto anchors, bucket.list(TrlObject::Kind::kAnchor, std::nullopt));
    if (!anchors.empty()) newest.anchor = newest.step = anchors.back().step;
    WISP_ASSIGN(const auto deltas, bucket.list(TrlObject::Kind::kDelta, newest.anchor));
    newest.deltas_since = deltas.size();
    if (!deltas.empty()) newest.step = deltas.back().step;
    return newest;
}

class TrlWriter {
  public:
    TrlWriter(const Location& where, Replica& baseline, const Weights& weights,
              const TrlPublishOptions& options)
        : where_(where),
          baseline_(baseline),
          weights_(weights),
          options_(options),
          bucket_(where, baseline.scratch() / "fetched", options.parallel_fetches) {}

    Result<PublishReport> publish(std::optional<std::uint64_t> asked) {
        WISP_ASSIGN(const std::optional<TrlStand> at, bring_up_baseline());
        WISP_ASSIGN(Newest newest, find_newest(bucket_));
        const std::uint64_t next = newest.step ? *newest.step + 1 : 0;
        report_.step = asked.value_or(next);
        report_.seq = report_.step + 1;
        report_.total_elements = weights_.schema().total_elements();
        if (at && at->step != newest.step) return another_writer(newest.step.value_or(0));
        if (report_.step < next) {
            WISP_ASSIGN(const bool present, is_present(at));
            if (!present) return another_writer(next - 1);
            report_.present = true;
        } else if (at) {
            WISP_TRY(publish_delta(at->state));
            ++newest.deltas_since;
        } else {
            WISP_TRY(publish_first_anchor());
            return report_;
        }
        const bool due = options_.anchor_every > 0 && newest.anchor != report_.step &&
                         newest.deltas_since >= options_.anchor_every;
        if (due) WISP_TRY(publish_anchor());
        return report_;
    }

  private:
    /// Where the baseline stands then: at the newest state, or nowhere when that cannot be had.
    Result<std::optional<TrlStand>> bring_up_baseline() {
        const Stopwatch start;
        FollowOptions follow;
        follow.run.clock = options_.clock;
        follow.threads = options_.threads;
        follow.parallel_fetches = options_.parallel_fetches;
        follow.accept_rewind = true;
        WISP_ASSIGN(Follower follower, open_trl_follower(where_, baseline_, follow));
        const auto caught = follower.catch_up();
        report_.baseline_seconds += start.seconds();
        if (caught) {
            const ReplicaRecord& at = follower.at();
            if (at.state_seq == 0) return std::optional<TrlStand>{};
            return std::optional(TrlStand{at.step, at.state, !at.unproven});
        }
        switch (caught.error().kind) {
            // A whole anchor mends a bucket whose newest state is lost.
            case ErrorKind::kCorrupt:
            case ErrorKind::kGap:
            case ErrorKind::kWrongBase:
            case ErrorKind::kUnsupported:
            case ErrorKind::kInvalid: return std::optional<TrlStand>{};
            default: return std::unexpected(caught.error());
        }
    }

    std::unexpected<Error> another_writer(std::uint64_t newest) const {
        return fail(ErrorKind::kConflict,
                    fmt::format("cannot publish step {}: {} is at step {} already; publish a later "
                                "one, and see that nobody else writes there",
                                report_.step, shown(where_.url), newest));
    }

    /// An earlier try may have got through although it was told otherwise.
    Result<bool> is_present(const std::optional<TrlStand>& at) {
        if (!at || at->step != report_.step ||
            baseline_.weights()->schema().digest() != weights_.schema().digest()) {
            return false;
        }
        WISP_ASSIGN(report_.state, digest_of(weights_, options_.threads));
        return report_.state == at->state;
    }

    Result<void> publish_delta(const StateDigest& base) {
        const Stopwatch start;
        const fs::path path = baseline_.scratch() / "published.safetensors";
        DiffOptions options;
        options.codec = options_.codec;
        options.threads = options_.threads;
        options.step = report_.step;
        options.progress = options_.progress;
        WISP_ASSIGN(const DiffReport diff,
                    diff_weights(*baseline_.weights(), weights_, path, options));
        report_.diff_seconds = start.seconds();
        if (diff.base != base) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("the baseline {} changed under our hands; remove it and "
                                    "publish again",
                                    shown(baseline_.label())));
        }
        report_.kind = CommitKind::kDelta;
        report_.changed_elements = diff.changed_elements;
        report_.delta_bytes = diff.file_bytes;
        report_.state = diff.result;
        WISP_TRY(upload(trl_delta_key(report_.step), path));
        const Stopwatch applying;
        const auto applied = baseline_.apply({path}, record());
        report_.baseline_seconds += applying.seconds();
        std::error_code ignored;
        fs::remove(path, ignored);
        // The step is out. A cache that did not follow is made again by the next publish.
        return applied ? Result<void>{} : baseline_.discard();
    }

    /// Without a delta: there is nothing that it could start from.
    Result<void> publish_first_anchor() {
        const fs::path folder = baseline_.scratch() / "anchor";
        std::error_code error;
        fs::remove_all(folder, error);
        fs::create_directories(folder, error);
        if (error) return std::unexpected(file_error("create", folder, error.value()));
        report_.kind = CommitKind::kAnchor;
        report_.changed_elements = report_.total_elements;
        WISP_TRY(send_anchor(folder / "model.safetensors"));
        return baseline_.adopt(folder, record());
    }

    Result<void> publish_anchor() {
        const fs::path path = baseline_.scratch() / "anchor.safetensors";
        WISP_TRY(send_anchor(path));
        std::error_code ignored;
        fs::remove(path, ignored);
        return {};
    }

    Result<void> send_anchor(const fs::path& path) {
        WISP_ASSIGN(report_.state, digest_of(weights_, options_.threads));
        WISP_TRY(write_weights(weights_, path,
                               anchor_metadata(weights_.schema(), report_.step, report_.state)));
        report_.anchored = true;
        std::error_code ignored;
        report_.anchor_bytes = fs::file_size(path, ignored);
        return upload(trl_anchor_key(report_.step), path);
    }

    Result<void> upload(const std::string& name, const fs::path& path) {
        const Stopwatch start;
        const std::string key = where_.key(name);
        WISP_ASSIGN(const MappedFile mapped, MappedFile::open(path));
        if (mapped.bytes().size() > kLargestCreated) {
            WISP_TRY(where_.store->put(key, mapped.bytes()));
        } else {
            WISP_ASSIGN(const Created created, where_.store->create(key, mapped.bytes()));
            if (created == Created::kAlreadyThere) {
                WISP_ASSIGN(const bool ours, holds(key, mapped.bytes()));
                if (!ours) return another_writer(report_.step);
            }
        }
        report_.uploaded_bytes += mapped.bytes().size();
        report_.upload_seconds += start.seconds();
        return {};
    }

    Result<bool> holds(const std::string& key, std::span<const std::byte> bytes) {
        WISP_ASSIGN(const ObjectInfo info, where_.store->head(key));
        if (info.size_bytes != bytes.size()) return false;
        Bytes buffer;
        for (std::size_t at = 0; at < bytes.size(); at += kCompareBytes) {
            const auto expected = bytes.subspan(at, std::min(kCompareBytes, bytes.size() - at));
            buffer.resize(expected.size());
            WISP_ASSIGN(const std::size_t count, where_.store->read(key, at, buffer));
            if (count != expected.size() || !std::ranges::equal(buffer, expected)) return false;
        }
        return true;
    }

    ReplicaRecord record() const {
        return trl_record(trl_run_id(where_), {report_.step, report_.state, true});
    }

    const Location& where_;
    Replica& baseline_;
    const Weights& weights_;
    const TrlPublishOptions& options_;
    TrlBucket bucket_;
    PublishReport report_;
};

}  // namespace

Result<PublishReport> publish_trl(const Location& where, Replica& baseline, const Weights& weights,
                                  std::optional<std::uint64_t> step,
                                  const TrlPublishOptions& options) {
    const StopScope scope(options.stop);
    if (holds_blocks(options.codec)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("TRL cannot read the {} codec; publish into its layout with "
                                "--codec plain or gap",
                                name_of(options.codec)));
    }
    return TrlWriter(where, baseline, weights, options).publish(step);
}

}  // namespace wisp
