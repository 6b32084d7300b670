#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.hpp"
#include "base/try.hpp"
#include "log/branch_pins.hpp"
#include "log/lineage.hpp"
#include "log/manifest.hpp"
#include "log/run_keys.hpp"
#include "maintain/maintenance_commit.hpp"
#include "wisp/control.hpp"
#include "wisp/maintenance.hpp"

// Retention in three moves, each safe to stop after (doc/protocol.md section 9):
//   1. a commit announces the floor: from then on no new plan starts below it;
//   2. when the grace has passed, objects that only commits below the floor name are removed;
//   3. those commits are buried: their slots stay taken for ever.
namespace wisp {
namespace {

constexpr std::size_t kPage = 1000;

/// Keys of this run that a commit names.
void collect(const StoredFile& file, std::set<std::string>& keys) {
    if (!file.at.empty()) return;
    for (const StoredPart& part : file.parts) keys.insert(part.key);
}

void collect(const Manifest& manifest, std::set<std::string>& keys) {
    for (const AnchorEntry& anchor : manifest.anchors) {
        for (const StoredFile& file : anchor.files) collect(file, keys);
    }
    for (const MergedDelta& merged_delta : manifest.merged_deltas)
        collect(merged_delta.delta, keys);
}

class Retention {
  public:
    Retention(CommitLog& log, const RetainOptions& options) : log_(log), options_(options) {}

    Result<RetainReport> run() {
        // Before the log is read: what is written while this sleeps or is slow counts as young.
        WISP_ASSIGN(began_ms_, log_.where().store->now_ms());
        WISP_ASSIGN(const auto head, log_.head_for(options_.maintenance.signer, false));
        if (!head || head->commit.state.seq == 0) return report_;
        head_ = *head;
        // Before anything is given up: history must be whole down to where retention has been.
        WISP_TRY(read_history(0));
        WISP_TRY(move_floor());
        WISP_TRY(sort_objects());
        WISP_TRY(release_branches());
        WISP_TRY(read_pins());
        WISP_TRY(sweep_commits());
        WISP_TRY(sweep_orphans());
        WISP_TRY(renew_own_pins());
        return report_;
    }

  private:
    std::uint64_t wanted_floor(const Manifest& manifest, std::uint64_t floor) const {
        const std::uint64_t keep = std::max<std::uint64_t>(1, options_.keep_anchors);
        if (manifest.anchors.size() <= keep) return floor;
        return std::max(floor, manifest.anchors[manifest.anchors.size() - keep].state.seq);
    }

    Result<void> move_floor() {
        floor_ = head_.commit.floor;
        WISP_ASSIGN(Manifest manifest, log_.manifest_of(head_));
        if (options_.dry_run) {
            const std::uint64_t wanted = wanted_floor(manifest, floor_);
            report_.floor_moved = wanted > floor_;
            floor_ = wanted;
            prune(manifest, floor_);
        } else {
            WISP_ASSIGN(
                auto moved,
                append_maintenance(log_, CommitKind::kFloor, options_.maintenance,
                                   [&](const Commit&, Manifest& edited, std::uint64_t& floor) {
                                       const std::uint64_t wanted = wanted_floor(edited, floor);
                                       if (wanted <= floor) return false;
                                       floor = wanted;
                                       prune(edited, floor);
                                       return true;
                                   }));
            if (moved) {
                const std::uint64_t known = head_.commit.seq;
                head_ = std::move(*moved);
                WISP_TRY(read_history(known));
                report_.floor_moved = true;
                floor_ = head_.commit.floor;
                manifest = *head_.commit.manifest;
            }
        }
        report_.floor_seq = floor_;
        for (const AnchorEntry& anchor : manifest.anchors) {
            if (anchor.state.seq == floor_) report_.floor_step = anchor.state.step;
        }
        collect(manifest, live_);
        collect_foreign(manifest);
        return {};
    }

    /// The floor that was announced at least the grace ago, by the store's own clock.
    Result<void> find_safe_floor() {
        safe_floor_ = 0;
        safe_seq_ = 0;
        if (options_.grace.count() == 0) {
            safe_floor_ = floor_;
            // A dry run stands behind a commit that was not made.
            safe_seq_ = head_.commit.seq + (options_.dry_run && report_.floor_moved ? 1 : 0);
            return {};
        }
        WISP_ASSIGN(const std::int64_t now, log_.where().store->now_ms());
        // Newest first: the first commit that is old enough tells.
        for (auto at = retained_.rbegin(); at != retained_.rend(); ++at) {
            const std::string key = log_.where().key(commit_key(at->commit.seq));
            const auto info = log_.where().store->head(key);
            if (!info && info.error().kind == ErrorKind::kNotFound) {
                return fail(ErrorKind::kGap,
                            fmt::format("{} was lost while retention read the log; "
                                        "restore it from a copy",
                                        shown(key)));
            }
            if (!info) return std::unexpected(info.error());
            if (info->modified_ms == 0 || now - info->modified_ms < options_.grace.count())
                continue;
            safe_floor_ = std::min(at->commit.floor, floor_);
            safe_seq_ = at->commit.seq;
            return {};
        }
        return {};
    }

    /// Every commit after `known` that retention has left, by the chain down from the head. One
    /// that is missing is an error, and not the end: whatever older ones name must not look like
    /// nobody's.
    Result<void> read_history(std::uint64_t known) {
        Lineage history(log_, head_);
        std::vector<LogEntry> found;
        for (std::optional<LogEntry> at = head_; at && at->commit.seq > known;) {
            WISP_ASSIGN(auto before, history.before(*at, &overwritten_));
            found.push_back(std::move(*at));
            at = std::move(before);
        }
        retained_.insert(retained_.end(), std::make_move_iterator(found.rbegin()),
                         std::make_move_iterator(found.rend()));
        return {};
    }

    Result<void> sort_objects() {
        WISP_TRY(find_safe_floor());
        for (const LogEntry& entry : retained_) {
            const Commit& commit = entry.commit;
            std::set<std::string> named;
            if (commit.delta) collect(*commit.delta, named);
            // Singles from the safe floor on stay; so does what plans of the grace may use.
            if (commit.seq >= std::max(safe_floor_, std::uint64_t{1}) && commit.delta) {
                collect(*commit.delta, live_);
                if (commit.seq < floor_) collect(*commit.delta, waiting_);
            }
            if (commit.manifest) {
                collect(*commit.manifest, named);
                if (commit.seq >= safe_seq_) collect(*commit.manifest, live_);
            }
            named_.insert(named.begin(), named.end());
            if (commit.seq < safe_floor_) buried_.push_back(commit.seq);
        }
        // The map in force when the grace began, wherever it stands.
        for (const LogEntry& entry : retained_) {
            if (safe_seq_ == 0 || entry.commit.seq != safe_seq_) continue;
            WISP_ASSIGN(const Manifest manifest, log_.manifest_of(entry));
            collect(manifest, live_);
        }
        return {};
    }

    Result<void> read_pins() {
        WISP_ASSIGN(const auto pins, read_branch_pins(log_.where()));
        for (const auto& [slot, pin] : pins) {
            if (pin.keys.empty()) continue;
            live_.insert(pin.keys.begin(), pin.keys.end());
            report_.held_by_branches.push_back(pin.run);
        }
        return {};
    }

    /// What branches needed that were given up.
    Result<void> release_branches() {
        if (options_.release_branches.empty()) return {};
        WISP_ASSIGN(const auto pins, read_branch_pins(log_.where()));
        for (const std::string& run : options_.release_branches) {
            const auto held = std::ranges::find(
                pins, run, [](const HeldPin& pin) -> const std::string& { return pin.pin.run; });
            if (held == pins.end()) {
                return fail(ErrorKind::kInvalid,
                            fmt::format("no branch {} stands on {}; 'wisp status' lists them",
                                        shown(run), shown(log_.where().url)));
            }
            if (options_.dry_run) continue;
            WISP_TRY(write_branch_pin(log_.where(), {run, held->pin.at, {}}));
        }
        return {};
    }

    bool is_old(const ObjectInfo& info) const {
        return info.modified_ms != 0 && began_ms_ - info.modified_ms >= options_.orphan_age.count();
    }

    enum class Removed { kWhatever, kOld };
    Result<void> remove(const std::string& key, Removed which) {
        const std::string full = log_.where().key(key);
        const auto info = log_.where().store->head(full);
        if (!info && info.error().kind == ErrorKind::kNotFound) return {};
        if (!info) return std::unexpected(info.error());
        // A publisher that slept may have sent it again since it was listed, and name it now.
        if (which == Removed::kOld && !is_old(*info)) return {};
        if (!options_.dry_run) WISP_TRY(log_.where().store->remove(full));
        ++report_.removed_objects;
        report_.removed_bytes += info->size_bytes;
        report_.removed_keys.push_back(key);
        return {};
    }

    Result<void> sweep_commits() {
        for (const std::string& key : named_) {
            if (!live_.contains(key)) WISP_TRY(remove(key, Removed::kWhatever));
        }
        for (const std::string& key : waiting_) {
            const auto info = log_.where().store->head(log_.where().key(key));
            if (!info) continue;
            ++report_.waiting_objects;
            report_.waiting_bytes += info->size_bytes;
        }
        // Oldest first: tombstones stay contiguous, so that the next sweep knows where to stop.
        for (const std::uint64_t seq : buried_) {
            if (!options_.dry_run) WISP_TRY(log_.bury(seq, floor_));
            ++report_.buried_commits;
        }
        return {};
    }

    /// What a killed publisher or compactor left behind: named by nobody, and old.
    Result<void> sweep_orphans() {
        // What was overwritten below the floor named objects too, perhaps within the grace: it gets
        // its tombstone now, and the next retention sweeps.
        if (overwritten_) {
            if (!options_.dry_run) WISP_TRY(log_.bury(*overwritten_, floor_));
            return {};
        }
        for (const std::string_view folder : {kAnchorsPrefix, kDeltasPrefix}) {
            const std::string prefix = log_.where().key(folder);
            std::string after;
            for (;;) {
                WISP_ASSIGN(const auto page, log_.where().store->list(prefix, after, kPage));
                for (const ListedObject& object : page) {
                    const std::string key = std::string(folder) + object.key.substr(prefix.size());
                    if (!is_old(object.info) || live_.contains(key) || named_.contains(key)) {
                        continue;
                    }
                    WISP_TRY(remove(key, Removed::kOld));
                }
                if (page.size() < kPage) break;
                after = page.back().key;
            }
        }
        return {};
    }

    /// What this run, being a branch, still needs of others.
    void collect_foreign(const Manifest& manifest) {
        const auto note = [&](const StoredFile& file) {
            if (file.at.empty()) return;
            const auto prefix = resolve_run_path(log_.where().prefix, file.at);
            if (!prefix) return;
            for (const StoredPart& part : file.parts) foreign_[*prefix].insert(part.key);
        };
        for (const AnchorEntry& anchor : manifest.anchors) {
            for (const StoredFile& file : anchor.files) note(file);
        }
        for (const MergedDelta& merged_delta : manifest.merged_deltas) note(merged_delta.delta);
    }

    Result<void> renew_own_pins() {
        // Only when nobody can still be reading below it: replicas of the grace may still read the
        // others' objects.
        if (!log_.record().origin || options_.dry_run || safe_floor_ < floor_) return {};
        const auto origin = resolve_run_path(log_.where().prefix, log_.record().origin->at);
        if (!origin) return {};
        foreign_[*origin];
        for (const auto& [prefix, keys] : foreign_) {
            const Location holder{log_.where().store, prefix, log_.where().url};
            WISP_TRY(write_branch_pin(holder, {log_.run(),
                                               run_path_between(prefix, log_.where().prefix),
                                               {keys.begin(), keys.end()}}));
        }
        return {};
    }

    CommitLog& log_;
    const RetainOptions& options_;
    RetainReport report_;
    std::int64_t began_ms_ = 0;  // by the store's clock
    LogEntry head_;
    std::vector<LogEntry> retained_;            // ascending
    std::optional<std::uint64_t> overwritten_;  // where they begin, by somebody without a key
    std::uint64_t floor_ = 0;
    std::uint64_t safe_floor_ = 0;  // the floor below which nobody may still be reading
    std::uint64_t safe_seq_ = 0;    // the commit that was the newest when the grace began
    std::set<std::string> live_;
    std::set<std::string> named_;    // by any commit that is left
    std::set<std::string> waiting_;  // given up, but within the grace
    std::vector<std::uint64_t> buried_;
    std::map<std::string, std::set<std::string>> foreign_;
};

}  // namespace

Result<RetainReport> retain_run(const Location& where, const RetainOptions& options) {
    const StopScope scope(options.maintenance.run.stop);
    if (options.keep_anchors == 0) {
        return fail(ErrorKind::kInvalid, "keep at least one anchor, better two");
    }
    WISP_ASSIGN(CommitLog log, CommitLog::open(where, options.maintenance.run));
    return Retention(log, options).run();
}

}  // namespace wisp
