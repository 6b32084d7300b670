// The runs that a dashboard shows, each kept fresh by a thread of its own, so that a bucket which
// does not answer holds up nobody else.
//
// Addresses of runs are taken as they are; of a prefix all runs directly under it, and those that
// appear there later.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "run_view.hpp"

namespace wisp::cli {

class WatchedRuns {
  public:
    /// kNoRun: there is no run at an address, nor under it. Of several runs one at least can be
    /// read; a single one that cannot is its error.
    static Result<std::unique_ptr<WatchedRuns>> open(const std::vector<std::string>& urls,
                                                     const TrustArguments& trust,
                                                     const ViewOptions& options,
                                                     const Common& common);

    /// `runs`: one line each, with its `id`.
    Json overview() const;
    /// Nothing when there is no such run. What is returned lives as long as this.
    RunView* find(std::uint64_t id) const;
    std::size_t size() const;

  private:
    struct Watched {
        std::string url;
        std::unique_ptr<RunView> view;
        std::jthread refresher;
    };
    WatchedRuns(const TrustArguments& trust, const ViewOptions& options, const Common& common)
        : trust_(trust), options_(options), common_(common) {}

    Result<void> add(const std::string& url, bool or_prefix);
    Result<void> add_found(const std::string& prefix);
    void watch_prefixes();

    const TrustArguments trust_;
    const ViewOptions options_;
    const Common common_;
    std::vector<std::string> prefixes_;
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Watched>> runs_;  // never removed, so that ids stay
    std::jthread finder_;                         // last: it adds to what is above
};

}  // namespace wisp::cli
