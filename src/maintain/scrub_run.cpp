#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/pending_folder.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "delta/deliver_changes.hpp"
#include "follow/object_fetcher.hpp"
#include "follow/replica_file.hpp"
#include "follow/replica_updater.hpp"
#include "log/run_keys.hpp"
#include "wisp/control.hpp"
#include "wisp/maintenance.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kPieceBytes = 8 << 20;

class Scrubber {
  public:
    Scrubber(const CommitLog& log, const MaintenanceOptions& options)
        : log_(log), options_(options) {}

    Result<ScrubReport> run(bool replay) {
        WISP_ASSIGN(const auto head, log_.head());
        if (!head) return report_;
        WISP_TRY(read_commits(*head));
        WISP_TRY(read_objects());
        if (replay && head->commit.state.seq != 0) WISP_TRY(replay_states(*head));
        return report_;
    }

  private:
    void found(std::string what, std::string problem, std::string cure) {
        report_.findings.push_back({std::move(what), std::move(problem), std::move(cure)});
    }

    Result<void> read_commits(const LogEntry& head) {
        // What the commit above was built on; nothing when that one could not be read.
        std::optional<CommitRef> wanted = head.ref();
        for (std::uint64_t seq = head.commit.seq; seq >= log_.first_seq(); --seq) {
            auto slot = log_.read(seq);
            if (!slot && slot.error().kind == ErrorKind::kUnavailable) {
                return std::unexpected(std::move(slot).error());
            }
            if (slot && slot->kind == Slot::Kind::kBuried && seq < head.commit.floor) break;
            const bool is_wanted = !wanted || wanted->seq == seq;
            if (slot && slot->entry && is_wanted) {
                take_commit(std::move(*slot->entry), wanted);
                continue;
            }
            if (is_wanted) wanted.reset();
            tell_hole(seq, slot, is_wanted);
        }
        std::ranges::reverse(commits_);
        return {};
    }

    void take_commit(LogEntry entry, std::optional<CommitRef>& wanted) {
        ++report_.commits;
        if (wanted && entry.hash != wanted->hash) {
            found(commit_key(entry.commit.seq), "is not the one the next commit was built on",
                  "stop and look");
        }
        wanted = entry.commit.previous;
        commits_.push_back(std::move(entry));
    }

    void tell_hole(std::uint64_t seq, const Result<Slot>& slot, bool is_wanted) {
        const std::string name = commit_key(seq);
        const std::string restore = "restore the bucket from a copy";
        if (!slot) return found(name, slot.error().text, restore);
        switch (slot->kind) {
            case Slot::Kind::kAbsent:
                if (is_wanted) found(name, "is missing", restore);
                return;
            case Slot::Kind::kBuried:
                return found(name, "holds a tombstone, though it is above the floor", restore);
            default:
                return found(
                    name, slot->why ? slot->why->text : "is no part of the history",
                    is_wanted ? restore : "nobody heeds it; find out who else can write there");
        }
    }

    /// The run that keeps it: this one, or the one that this branched off.
    Location holder_of(const StoredFile& file) const {
        Location holder = log_.where();
        if (!file.at.empty()) {
            holder.prefix = resolve_run_path(holder.prefix, file.at).value_or(holder.prefix);
        }
        return holder;
    }

    /// What read_file() of all of them reads: an object that several name, once.
    std::uint64_t bytes_of(const std::vector<const StoredFile*>& files) const {
        std::set<std::string> keys;
        std::uint64_t sum = 0;
        for (const StoredFile* file : files) {
            const Location holder = holder_of(*file);
            for (const StoredPart& part : file->parts) {
                if (keys.insert(holder.key(part.key)).second) sum += part.bytes;
            }
        }
        return sum;
    }

    Result<void> read_file(const StoredFile& file) {
        const Location holder = holder_of(file);
        for (const StoredPart& part : file.parts) {
            const std::string key = holder.key(part.key);
            if (!seen_.insert(key).second) continue;
            Sha256 hash;
            std::uint64_t at = 0;
            Bytes piece(kPieceBytes);
            for (;;) {
                auto count = holder.store->read(key, at, piece);
                if (!count && count.error().kind == ErrorKind::kNotFound) {
                    found(part.key, "is missing", "publish an anchor");
                    break;
                }
                if (!count) return std::unexpected(std::move(count).error());
                hash.add(std::span(piece).first(*count));
                at += *count;
                if (options_.progress) {
                    const std::uint64_t done = report_.bytes + at;
                    options_.progress("scrub", done, std::max(done, listed_bytes_));
                }
                if (*count == piece.size() && at <= part.bytes) continue;
                if (at != part.bytes || to_hex(hash.finish()) != part.sha256) {
                    found(part.key, "does not have the bytes its commit says", "publish an anchor");
                }
                break;
            }
            ++report_.objects;
            report_.bytes += at;
        }
        return {};
    }

    Result<void> read_objects() {
        if (commits_.empty()) return {};
        const Commit& newest = commits_.back().commit;
        std::vector<const StoredFile*> files;
        for (const LogEntry& entry : commits_) {
            // Below the floor retention may be at work: what is gone there is meant to be gone.
            if (entry.commit.delta && entry.commit.seq >= newest.floor) {
                files.push_back(&*entry.commit.delta);
            }
        }
        const auto manifest = log_.manifest_of(commits_.back());
        if (!manifest) {
            found("the manifest", manifest.error().text, "publish an anchor");
        } else {
            for (const AnchorEntry& anchor : manifest->anchors) {
                for (const StoredFile& file : anchor.files) files.push_back(&file);
            }
            for (const MergedDelta& merged_delta : manifest->merged_deltas) {
                files.push_back(&merged_delta.delta);
            }
        }
        listed_bytes_ = bytes_of(files);
        for (const StoredFile* file : files) WISP_TRY(read_file(*file));
        return {};
    }

    /// Walks every retained state from the oldest anchor on, and tries every merged delta on the
    /// state it starts from.
    Result<void> replay_states(const LogEntry& head) {
        WISP_ASSIGN(const Manifest manifest, log_.manifest_of(head));
        if (manifest.anchors.empty()) return {};
        WISP_ASSIGN(const PendingFolder work, PendingFolder::temporary(options_.work));
        FolderReplicaOptions folder_options;
        folder_options.threads = options_.threads;
        folder_options.durable = false;
        folder_options.progress = options_.progress;
        WISP_ASSIGN(const auto replica,
                    open_folder_replica(work.path() / "replica", folder_options));
        WISP_TRY(replica->load());
        Lineage history(log_, head);
        ReplicaRecord at;
        ReplicaUpdater updater(
            log_, *replica, at,
            {options_.threads, options_.parallel, options_.base, {}, {}, options_.progress});
        ObjectFetcher fetcher(log_.where(), work.path() / "merged_deltas", options_.parallel);
        const auto arrive = [&](const StateName& state) -> Result<void> {
            if (const auto gone = updater.go(history, state); !gone) {
                if (gone.error().kind == ErrorKind::kUnavailable) return gone;
                found(step_text(state.step), gone.error().text, "publish an anchor");
                return {};
            }
            ++report_.states_proven;
            for (const MergedDelta& merged_delta : manifest.merged_deltas) {
                if (merged_delta.from.seq != state.seq) continue;
                const auto path = fetcher.fetch_surely(merged_delta.delta);
                const auto proven = path ? prove_changes(*replica->weights(), state.digest, {*path},
                                                         options_.threads)
                                         : Result<ApplyReport>(std::unexpected(path.error()));
                if (!proven || proven->result != merged_delta.to.digest) {
                    found(merged_delta.delta.parts.front().key,
                          proven ? "leads to another state" : proven.error().text,
                          "publish an anchor");
                }
                fetcher.clear();
            }
            return {};
        };
        WISP_TRY(arrive(manifest.anchors.front().state));
        for (const LogEntry& entry : commits_) {
            if (!entry.commit.makes_state() || entry.commit.seq <= at.state_seq) continue;
            WISP_TRY(arrive(entry.commit.state));
        }
        return {};
    }

    const CommitLog& log_;
    const MaintenanceOptions& options_;
    ScrubReport report_;
    std::vector<LogEntry> commits_;
    std::set<std::string> seen_;
    std::uint64_t listed_bytes_ = 0;
};

}  // namespace

Result<ScrubReport> scrub_run(const Location& where, const MaintenanceOptions& options,
                              bool replay) {
    const StopScope scope(options.run.stop);
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options.run));
    return Scrubber(log, options).run(replay);
}

Result<ScrubReport> scrub_folder(const fs::path& folder, unsigned threads,
                                 const Progress& progress) {
    const fs::path record = folder / ".wisp" / "replica.json";
    WISP_ASSIGN(const MappedFile mapped, MappedFile::open(record));
    ScrubReport report;
    const auto file = parse_replica_file(as_text(mapped.bytes()));
    const auto found = [&](const std::string& what, const std::string& problem) {
        report.findings.push_back({what, problem, "let 'wisp follow' fetch it again"});
    };
    if (!file) {
        found(record.string(), file.error().text);
        return report;
    }
    if (!file->at || file->at->state_seq == 0) return report;
    const auto checkpoint = Checkpoint::open(folder, PendingApply::kAllow);
    if (!checkpoint) {
        found(folder.string(), checkpoint.error().text);
        return report;
    }
    WISP_ASSIGN(const StateDigest state, digest_of(*checkpoint, threads, progress));
    report.objects = checkpoint->files().size();
    report.bytes = checkpoint->schema().total_bytes();
    const bool between = file->next && file->next->state == state;
    if (state == file->at->state || between) {
        report.states_proven = 1;
    } else {
        found(folder.string(), fmt::format("is at state {}, not at {} of step {}", to_text(state),
                                           to_text(file->at->state), file->at->step));
    }
    return report;
}

}  // namespace wisp
