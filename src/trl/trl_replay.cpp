#include "trl/trl_replay.hpp"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/shard_index.hpp"
#include "delta/deliver_changes.hpp"
#include "delta/delta_layout.hpp"
#include "delta/diff_weights.hpp"
#include "delta/verified_delta.hpp"
#include "wisp/trl_layout.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kRunDigits = 32;

/// The tensors of an anchor over those of the state before it.
class Overlay : public Weights {
  public:
    static Result<Overlay> make(const Weights& below, const Checkpoint& anchor) {
        Overlay overlay(below);
        for (std::size_t i = 0; i < anchor.schema().tensors().size(); ++i) {
            const TensorInfo& tensor = anchor.schema().tensors()[i];
            const auto at = below.schema().find(tensor.name);
            if (!at || below.schema().tensors()[*at] != tensor) {
                return fail(ErrorKind::kCorrupt,
                            fmt::format("anchor {} holds tensor {} as {} {}, which the model does "
                                        "not have; see who else writes to this bucket",
                                        shown(anchor.path().string()), shown(tensor.name),
                                        traits_of(tensor.dtype).name, shape_text(tensor.shape)));
            }
            overlay.tensors_[*at] = anchor.bytes(i);
        }
        return overlay;
    }
    const Schema& schema() const override { return *schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override { return tensors_[tensor]; }

  private:
    explicit Overlay(const Weights& below) : schema_(&below.schema()) {
        for (std::size_t i = 0; i < schema_->tensors().size(); ++i) {
            tensors_.push_back(below.bytes(i));
        }
    }
    const Schema* schema_;
    std::vector<std::span<const std::byte>> tensors_;
};

/// kCorrupt when it is no anchor, or says itself that tensors are missing.
Result<Checkpoint> open_anchor(const fs::path& file) {
    WISP_ASSIGN(Checkpoint anchor, Checkpoint::open(file));
    const auto& metadata = anchor.metadata();
    if (const auto sparse = metadata.find("sparse");
        sparse != metadata.end() && sparse->second == "True") {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} lies among the anchors but is a delta; see who wrote it",
                                shown(file.string())));
    }
    const auto total = metadata.find("total_elements");
    if (total == metadata.end()) return anchor;
    std::uint64_t stated = 0;
    const char* const end = total->second.data() + total->second.size();
    const auto [stop, error] = std::from_chars(total->second.data(), end, stated);
    if (error == std::errc() && stop == end && stated > anchor.schema().total_elements()) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("anchor {} holds {} of {} elements: TRL left out tensors that had "
                                "not changed, so nothing can start from it; start from an earlier "
                                "one, or name a base",
                                shown(file.string()), anchor.schema().total_elements(), stated));
    }
    return anchor;
}

/// The digest that an anchor of ours carries.
Result<std::optional<StateDigest>> promised_state(const Checkpoint& anchor) {
    const auto at = anchor.metadata().find(std::string(kTrlStateKey));
    if (at == anchor.metadata().end()) return std::optional<StateDigest>{};
    const auto digest = parse_digest(at->second);
    if (digest) return digest;
    return fail(ErrorKind::kCorrupt, fmt::format("anchor {}: its {} is not 32 hexadecimal digits",
                                                 shown(anchor.path().string()), kTrlStateKey));
}

/// TRL leaves out what has not changed.
Result<void> require_whole(const Schema& anchor, const Schema& whole, std::uint64_t step) {
    for (const TensorInfo& tensor : whole.tensors()) {
        if (anchor.find(tensor.name)) continue;
        return fail(ErrorKind::kCorrupt,
                    fmt::format("the anchor of step {} lacks tensor {}: TRL left out tensors that "
                                "had not changed, so nothing can start from it; start from an "
                                "earlier one, or name a base",
                                step, shown(tensor.name)));
    }
    return {};
}

/// Whether `file` leads to or on from another state than `at`; says so when it leads up to it.
Result<bool> passed_over(const fs::path& file, const TrlObject& object, TrlReached& at) {
    if (object.kind != TrlObject::Kind::kDelta || at.anywhere) return false;
    WISP_ASSIGN(const VerifiedDelta delta, verify_delta_file(file));
    if (!delta.sealed() || delta.facts().base == at.at.state) return false;
    if (delta.facts().result != at.at.state) return true;
    at.at.step = object.step;
    at.at.proven = at.anywhere = true;
    return true;
}

Result<void> advance(const Checkpoint& checkpoint, const TrlObject& object, const fs::path& file,
                     unsigned threads, TrlReached& at) {
    WISP_ASSIGN(const bool passed, passed_over(file, object, at));
    if (passed) return {};
    WISP_ASSIGN(const TrlMove move, move_from(checkpoint, object, file, threads));
    WISP_ASSIGN(const ApplyReport report,
                patch_unguarded(checkpoint, at.at.state, {move.delta}, threads));
    at.at.step = object.step;
    at.at.state = report.result;
    at.at.proven = object.kind == TrlObject::Kind::kDelta ? report.result_proven : move.vouched;
    at.anywhere = true;
    ++at.deltas;
    at.changed_elements += report.changed_elements;
    return {};
}

}  // namespace

std::string trl_run_id(const Location& where) {
    const std::string address = where.store->bucket() + "\n" + where.prefix;
    return to_hex(sha256(as_bytes(address))).substr(0, kRunDigits);
}

ReplicaRecord trl_record(const std::string& run, const TrlStand& stand) {
    ReplicaRecord record;
    record.run = run;
    record.seq = record.state_seq = record.state_index = stand.step + 1;
    record.step = stand.step;
    record.state = stand.state;
    record.unproven = !stand.proven;
    return record;
}

Result<TrlStand> unpack_anchor(TrlBucket& bucket, const TrlObject& object,
                               const std::optional<Schema>& whole, const fs::path& folder,
                               unsigned threads) {
    WISP_ASSIGN(const fs::path file, bucket.fetch(object));
    WISP_ASSIGN(const Checkpoint anchor, open_anchor(file));
    if (whole) WISP_TRY(require_whole(anchor.schema(), *whole, object.step));
    WISP_ASSIGN(const auto promised, promised_state(anchor));
    WISP_ASSIGN(const StateDigest state, digest_of(anchor, threads));
    if (promised && *promised != state) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("the anchor of step {} holds state {} instead of {}: it was "
                                "damaged; publish another",
                                object.step, to_text(state), to_text(*promised)));
    }
    WISP_TRY(write_weights(anchor, folder / "model.safetensors"));
    bucket.clear();
    return TrlStand{object.step, state, promised.has_value()};
}

Result<void> copy_base(const fs::path& base, const fs::path& folder, bool without_weights) {
    WISP_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(base));
    WISP_ASSIGN(auto files, files_of(checkpoint));
    if (without_weights) {
        std::erase_if(files, [](const CheckpointSource& file) {
            return file.weights || file.name == kShardIndexName;
        });
    }
    return copy_files(files, folder);
}

Result<TrlMove> move_from(const Weights& current, const TrlObject& object, const fs::path& file,
                          unsigned threads) {
    if (object.kind == TrlObject::Kind::kDelta) return TrlMove{file, false};
    WISP_ASSIGN(const Checkpoint anchor, Checkpoint::open(file));
    WISP_ASSIGN(const auto promised, promised_state(anchor));
    WISP_ASSIGN(const Overlay after, Overlay::make(current, anchor));
    TrlMove move;
    move.delta = file;
    move.delta += ".changes";
    DiffOptions options;
    options.threads = threads;
    options.step = object.step;
    WISP_ASSIGN(const DiffReport diff, diff_weights(current, after, move.delta, options));
    if (promised && *promised != diff.result) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("the anchor of step {} leads to state {} instead of {}; it was "
                                "damaged, or written for other tensors",
                                object.step, to_text(diff.result), to_text(*promised)));
    }
    move.vouched = promised.has_value();
    return move;
}

Result<TrlReached> replay_trl(TrlBucket& bucket, const fs::path& folder, TrlReached from,
                              const std::vector<TrlObject>& moves, unsigned threads) {
    WISP_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder));
    TrlReached at = std::move(from);
    for (const TrlObject& object : moves) {
        auto taken = [&]() -> Result<void> {
            WISP_ASSIGN(const fs::path file, bucket.fetch(object));
            return advance(checkpoint, object, file, threads, at);
        }();
        bucket.clear();
        if (taken) continue;
        const ErrorKind kind = taken.error().kind;
        if (kind != ErrorKind::kCorrupt && kind != ErrorKind::kGap) {
            return std::unexpected(std::move(taken).error());
        }
        at.stopped = std::move(taken).error();
        break;
    }
    if (at.anywhere) return at;
    if (at.stopped) return std::unexpected(*at.stopped);
    return fail(ErrorKind::kWrongBase,
                fmt::format("the base is at state {}, and no delta of {} starts from it; name the "
                            "checkpoint that training started from",
                            to_text(at.at.state), shown(bucket.where().url)));
}

}  // namespace wisp
