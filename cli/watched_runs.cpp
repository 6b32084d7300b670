#include "watched_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "process_stop.hpp"
#include "wisp/run_status.hpp"

namespace wisp::cli {
namespace {

constexpr std::int64_t kWatchedMs = 1'000;   // while a page shows the run
constexpr std::int64_t kIdleMs = 10'000;     // otherwise, for what is sampled
constexpr std::int64_t kPageGoneMs = 8'000;  // pages ask every two seconds
constexpr std::int64_t kFindMs = 60'000;
constexpr auto kNap = std::chrono::milliseconds(50);

void keep_fresh(RunView& view, const std::stop_token& ended) {
    std::int64_t looked = steady_ms();
    while (!ended.stop_requested() && !interrupted()) {
        const std::int64_t now = steady_ms();
        const bool watched = view.asked_ms() != 0 && now - view.asked_ms() < kPageGoneMs;
        if (now - looked < (watched ? kWatchedMs : kIdleMs)) {
            std::this_thread::sleep_for(kNap);
            continue;
        }
        // What is wrong is in the next answer.
        (void)view.refresh();
        looked = steady_ms();
    }
}

}  // namespace

Result<std::unique_ptr<WatchedRuns>> WatchedRuns::open(const std::vector<std::string>& urls,
                                                       const TrustArguments& trust,
                                                       const ViewOptions& options,
                                                       const Common& common) {
    std::unique_ptr<WatchedRuns> runs(new WatchedRuns(trust, options, common));
    std::optional<Error> first;
    for (const std::string& url : urls) {
        if (auto added = runs->add(url, true); !added && !first) first = added.error();
    }
    if (first && (urls.size() == 1 || first->kind == ErrorKind::kInvalid)) {
        return std::unexpected(*first);
    }
    const auto readable = [](const auto& run) { return run->view->head().has_value(); };
    if (std::ranges::none_of(runs->runs_, readable)) {
        return std::unexpected(first.value_or(Error{ErrorKind::kNoRun, "there is no run"}));
    }
    if (!runs->prefixes_.empty()) {
        runs->finder_ = std::jthread([shown = runs.get()](const std::stop_token& ended) {
            std::int64_t looked = steady_ms();
            while (!ended.stop_requested() && !interrupted()) {
                std::this_thread::sleep_for(kNap);
                if (steady_ms() - looked < kFindMs) continue;
                shown->watch_prefixes();
                looked = steady_ms();
            }
        });
    }
    return runs;
}

Result<void> WatchedRuns::add(const std::string& url, bool or_prefix) {
    auto access = open_run(url, trust_, common_);
    if (!access) return std::unexpected(std::move(access).error());
    auto watched = std::make_unique<Watched>();
    watched->url = url;
    watched->view = std::make_unique<RunView>(url, std::move(*access), options_);
    auto read = watched->view->refresh();
    if (!read && read.error().kind == ErrorKind::kNoRun && or_prefix) {
        const auto found = add_found(url);
        return found ? found : read;
    }
    watched->refresher = std::jthread(
        [view = watched->view.get()](const std::stop_token& ended) { keep_fresh(*view, ended); });
    const std::scoped_lock lock(mutex_);
    runs_.push_back(std::move(watched));
    return read;
}

Result<void> WatchedRuns::add_found(const std::string& prefix) {
    const auto access = open_run(prefix, trust_, common_);
    if (!access) return std::unexpected(access.error());
    const auto names = find_runs(access->where, access->options);
    if (!names) return std::unexpected(names.error());
    if (names->empty()) {
        return fail(ErrorKind::kNoRun, fmt::format("there is no run under {}", printable(prefix)));
    }
    if (std::ranges::find(prefixes_, prefix) == prefixes_.end()) prefixes_.push_back(prefix);
    for (const std::string& name : *names) {
        const std::string url = prefix + (prefix.ends_with('/') ? "" : "/") + name;
        if (std::ranges::any_of(runs_, [&](const auto& run) { return run->url == url; })) continue;
        // A run that cannot be read is shown as one.
        (void)add(url, false);
    }
    return {};
}

void WatchedRuns::watch_prefixes() {
    const std::vector<std::string> prefixes = prefixes_;
    for (const std::string& prefix : prefixes) (void)add_found(prefix);
}

Json WatchedRuns::overview() const {
    const std::scoped_lock lock(mutex_);
    Json runs = Json::array();
    for (std::size_t id = 0; id < runs_.size(); ++id) {
        Json line = {{"id", id}};
        line.update(runs_[id]->view->overview());
        runs.push_back(std::move(line));
    }
    return {{"runs", std::move(runs)}};
}

RunView* WatchedRuns::find(std::uint64_t id) const {
    const std::scoped_lock lock(mutex_);
    return id < runs_.size() ? runs_[id]->view.get() : nullptr;
}

std::size_t WatchedRuns::size() const {
    const std::scoped_lock lock(mutex_);
    return runs_.size();
}

}  // namespace wisp::cli
