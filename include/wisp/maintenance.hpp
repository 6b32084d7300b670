// What keeps a bucket small and sound: compact, retain, scrub, export, and examining a store.
// All may run beside a publisher and followers, from any machine that may write to the bucket.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/control.hpp"
#include "wisp/run.hpp"

namespace wisp {

struct MaintenanceOptions {
    RunOptions run;
    std::optional<RunSigner> signer;
    std::filesystem::path work;  // room for a checkpoint and deltas; empty: a temporary folder
    std::optional<std::filesystem::path> base;  // that anchors stand on; needed where all do
    unsigned threads = 0;
    unsigned parallel = 4;  // fetches, and uploads, at a time
    Progress progress;
};

struct CompactReport {
    std::uint64_t merged = 0;  // new merged deltas
    std::uint64_t merged_bytes = 0;
    std::uint64_t spans_states = 0;  // that the merged deltas stand for
    std::uint64_t join_bytes_before = 0;
    std::uint64_t join_bytes_after = 0;
    std::uint64_t join_objects_before = 0;
    std::uint64_t join_objects_after = 0;
};
/// Merges deltas in powers of two, so that a late joiner reads O(log n) objects after an anchor.
Result<CompactReport> compact_run(const Location& where, const MaintenanceOptions& options);

struct RetainOptions {
    MaintenanceOptions maintenance;
    std::uint64_t keep_anchors = 2;
    Milliseconds grace = Milliseconds(3'600'000);            // for replicas that planned before
    Milliseconds orphan_age = Milliseconds(24 * 3'600'000);  // of objects that no commit names
    /// Branches that were given up, by their runs' identities: what they needed may go.
    std::vector<std::string> release_branches;
    bool dry_run = false;
};
struct RetainReport {
    std::uint64_t floor_seq = 0;
    std::uint64_t floor_step = 0;
    bool floor_moved = false;
    std::uint64_t waiting_objects = 0;  // given up, but within the grace
    std::uint64_t waiting_bytes = 0;
    std::uint64_t removed_objects = 0;  // in a dry run: would be
    std::uint64_t removed_bytes = 0;
    std::uint64_t buried_commits = 0;
    std::vector<std::string> held_by_branches;
    std::vector<std::string> removed_keys;
};
Result<RetainReport> retain_run(const Location& where, const RetainOptions& options);

struct ScrubFinding {
    std::string what;
    std::string problem;
    std::string cure;
};
struct ScrubReport {
    std::uint64_t commits = 0;
    std::uint64_t objects = 0;
    std::uint64_t bytes = 0;
    std::uint64_t states_proven = 0;
    std::vector<ScrubFinding> findings;
};
/// Reads every retained object again and proves hashes, chain, signatures; `replay` also walks all
/// states and proves their digests.
Result<ScrubReport> scrub_run(const Location& where, const MaintenanceOptions& options,
                              bool replay);
/// Proves a replica's folder against what it remembers of itself.
Result<ScrubReport> scrub_folder(const std::filesystem::path& folder, unsigned threads,
                                 const Progress& progress);

struct ExportReport {
    std::uint64_t seq = 0;
    std::uint64_t step = 0;
    StateDigest state;
    std::uint64_t fetched_bytes = 0;
    std::uint64_t fetched_objects = 0;
};
/// Any retained step as a checkpoint folder; the newest when `step` is absent.
Result<ExportReport> export_step(const Location& where, std::optional<std::uint64_t> step,
                                 const std::filesystem::path& output,
                                 const MaintenanceOptions& options);

/// Of one promise that wisp needs a store to keep. They are tried out, since some stores pass every
/// test made one request at a time and still let both of two overlapping conditional writes win.
enum class Verdict { kPass, kWarn, kFail, kSkipped, kUndecided };
/// "pass", "warn", "fail", "skipped" or "undecided" (no answer). Stable.
std::string_view name_of(Verdict verdict);

struct Finding {
    std::string name;  // stable across releases
    Verdict verdict = Verdict::kPass;
    std::string detail;
    std::string cure;  // empty when there is nothing to cure
};

struct DoctorReport {
    std::vector<Finding> findings;
    /// Several writers are safe from each other. False, unless undecided: one writer only.
    bool exclusive_create = false;
    bool convicted = false;  // a conditional write broke its promise, or the store has none
    bool undecided = false;  // a finding is kUndecided: try again when the store answers
    /// Rounds in which several writers raced to create one object. Of a fault that shows in one
    /// round of n, 3 n rounds miss one examination in twenty.
    std::uint64_t races = 0;
    bool healthy = false;  // no finding is kFail
};

struct DoctorOptions {
    bool quick = false;         // fewer races, and no object of several parts
    Progress progress = {};     // counts probes, not bytes
    std::stop_token stop = {};  // ends it early: wisp/control.hpp
};

/// Writes, reads and removes objects under "<prefix>/.wisp-doctor-<random>/" only. An error means
/// that nothing could be found out: the store was out of reach, or refused the first write.
Result<DoctorReport> examine(const Location& location, const DoctorOptions& options = {});

}  // namespace wisp
