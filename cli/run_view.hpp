// What a page shows of a run, as JSON: read by refresh(), kept, and only what is new read again.
// doc/dashboard.md describes the answers.
//
// May be called from any number of threads. Answers come from memory and never wait for a bucket,
// save those that look into deltas; what could not be read leaves the old answers in place.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run_options.hpp"
#include "wisp/verdict.hpp"

namespace wisp::cli {

using Json = nlohmann::ordered_json;

struct ViewOptions {
    std::uint64_t commits = 500;  // the newest are shown, and kept
    std::string work;             // where a replica may be kept to count exponents; empty: nowhere
    unsigned threads = 0;
};

class RunView {
  public:
    RunView(std::string url, RunAccess access, ViewOptions options);

    /// Reads what is new, if the answers are old enough for that. The bucket is listed for sizes
    /// only once they were asked for.
    Result<void> refresh();
    /// When somebody last asked for more than the overview; steady milliseconds, 0: never.
    std::int64_t asked_ms() const { return asked_ms_; }

    /// One line among several runs. Never an error: what is wrong is in it.
    Json overview() const;
    Result<Json> run();
    Result<Json> head();
    Result<Json> commits(std::uint64_t after);
    /// Of each replica the heartbeats that were seen after `after_ms`.
    Result<Json> beats(std::int64_t after_ms);
    /// Reads deltas for a second or so, newest first; `pending` says how many are left. `cursor` is
    /// that of the answer before, 0 for everything.
    Result<Json> layers(std::uint64_t cursor);
    Result<Json> step(std::uint64_t seq);
    Result<Json> exponents(std::uint64_t seq);
    /// Everything at once, for a report: details of the newest `steps`.
    Result<Json> everything(std::uint64_t steps);

  private:
    /// What changed in each layer in one step, or why that is not known.
    struct Survey {
        std::uint64_t number = 0;  // in the order they were read
        std::uint64_t step = 0;
        std::string error;
        std::map<std::size_t, std::pair<std::uint64_t, std::uint64_t>> layers;  // changed, bytes
    };
    using Cache = std::deque<std::pair<std::uint64_t, Json>>;

    void note_asked();
    bool may_count() const;
    Result<void> read_news();
    Result<void> read_state();
    Result<void> read_heartbeats();
    void keep_beats();
    Result<void> require_data() const;
    RunVerdict verdict() const;
    std::vector<HistoryEntry> judged_commits() const;
    Json trouble_json() const;
    Json replicas_json() const;
    std::vector<ReplicaHealth> replicas_now() const;
    std::vector<std::uint64_t> unread_steps();
    void keep_survey(std::uint64_t seq, std::uint64_t step, const Result<FileReport>& report);
    std::size_t layer_index(const std::string& name);

    const std::string url_;
    const RunAccess access_;
    const ViewOptions options_;
    std::atomic<std::int64_t> asked_ms_{0};
    std::atomic<std::int64_t> first_asked_ms_{0};
    bool counts_at_once_ = false;

    std::mutex refresh_mutex_;  // held while a bucket is asked
    mutable std::mutex mutex_;  // guards what follows, up to the next mutex
    std::deque<HistoryEntry> lines_;
    std::vector<MergedDeltaSummary> merged_deltas_;
    std::uint64_t full_bytes_ = 0;
    RunStatus status_;
    std::vector<ReplicaHealth> replicas_;
    std::map<std::string, std::deque<BeatSample>> beats_;
    std::optional<Error> trouble_;
    std::int64_t trouble_since_ms_ = 0;  // since 1970
    std::int64_t read_ms_ = 0;           // since 1970; when all was last read, 0: never
    std::optional<std::int64_t> refreshed_ms_;
    std::optional<std::int64_t> status_ms_;
    std::optional<std::int64_t> counted_ms_;
    std::optional<std::int64_t> replicas_ms_;

    std::mutex layers_mutex_;
    std::map<std::uint64_t, Survey> surveys_;  // by seq
    std::uint64_t surveys_read_ = 0;
    std::vector<std::string> layer_names_;
    std::map<std::string, std::size_t> layer_numbers_;
    std::map<std::string, std::uint64_t> tensor_elements_;  // a delta names only what changed
    std::vector<std::uint64_t> layer_elements_;

    std::mutex steps_mutex_;
    Cache steps_;

    std::mutex exponents_mutex_;
    std::optional<ExponentCounter> counter_;
    Cache exponents_;
};

/// Milliseconds of a clock that is never set.
std::int64_t steady_ms();
/// An address without what may be secret in it: user, password, query.
std::string shown_address(const std::string& url);

}  // namespace wisp::cli
