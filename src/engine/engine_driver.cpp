#include "wisp/engine_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "base/without_throwing.hpp"
#include "engine/server_session.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr Milliseconds kPatienceWithTheAway{1'000};
constexpr Milliseconds kStopLook{50};  // how often a caller that waits looks whether it is to end

/// What the threads of a driver share.
struct Assignment {
    std::mutex mutex;
    std::condition_variable changed;
    EngineTarget target;
    std::uint64_t aimed = 0;  // how many targets there were
    bool closing = false;
    std::mutex telling;
    std::function<void(const EngineReport&)> on_report;
};

/// One server and the thread that works on it. Fields without a remark are under the assignment's
/// mutex.
class Worker {
  public:
    Worker(Assignment& assignment, const EngineServer& server, const EngineOptions& options)
        : assignment_(assignment),
          watch_(options.watch),
          stop_(options.stop),
          url_(server.url),
          kind_(server.kind),
          latest_(blank()) {}
    ~Worker() { signals_.ended = true; }

    ServerSignals& signals() { return signals_; }
    void start(std::unique_ptr<ServerSession> session) {
        session_ = std::move(session);
        thread_ = std::jthread([this] {
            const StopScope scope(stop_);
            work();
        });
    }
    void end() { signals_.ended = true; }

    bool is_done(std::uint64_t aim) const { return tried_ >= aim; }
    bool is_away() const { return away_; }
    const EngineReport& latest() const { return latest_; }

    EngineReport look() const {
        EngineReport report = blank();
        const Stopwatch watch;
        auto seen = without_throwing([&] { return session_->look(report); });
        if (!seen) report.error = std::move(seen).error();
        report.seconds = watch.seconds();
        return report;
    }

    /// Of a server that is still being brought there when the caller has to go.
    EngineReport still_under_way(const EngineTarget& target) const {
        EngineReport report = blank();
        report.target = target.step;
        report.error = Error{ErrorKind::kUnavailable,
                             fmt::format("stopped as asked, while {} was being brought to step {}",
                                         url_, target.step)};
        return report;
    }

    /// Of a server that did not answer before and has not yet answered now.
    EngineReport still_away(const EngineTarget& target) const {
        EngineReport report = blank();
        report.target = target.step;
        report.error = Error{ErrorKind::kUnavailable,
                             fmt::format("{} was away and is brought back behind; it had failed "
                                         "with: {}",
                                         url_, latest_.error ? latest_.error->text : "no answer")};
        return report;
    }

  private:
    EngineReport blank() const {
        EngineReport report;
        report.url = url_;
        report.kind = kind_;
        return report;
    }

    void work() {
        std::unique_lock lock(assignment_.mutex);
        while (!assignment_.closing) {
            if (assignment_.aimed == tried_ && !wait(lock)) continue;
            const EngineTarget target = assignment_.target;
            const std::uint64_t aim = assignment_.aimed;
            const bool again = aim == tried_;
            lock.unlock();
            signals_.heard = false;
            EngineReport report = try_once(target);
            const bool heard = signals_.heard;
            const bool news = !again || report.moved || differs(report);
            const bool cut_short = report.error && (stopped() || signals_.ended);
            // Told before it counts as done, so that a thread that waits for it finds it told.
            if (news && !cut_short && assignment_.on_report) tell(report);
            lock.lock();
            away_ = !heard;
            latest_ = std::move(report);
            tried_ = aim;
            assignment_.changed.notify_all();
        }
    }

    /// What its listener throws is the listener's affair, and must not end the process.
    void tell(const EngineReport& report) {
        const std::scoped_lock telling(assignment_.telling);
        (void)without_throwing([&]() -> Result<void> {
            assignment_.on_report(report);
            return {};
        });
    }

    /// True when it is time to look after the server although there is no new target.
    bool wait(std::unique_lock<std::mutex>& lock) const {
        const auto woken = [&] { return assignment_.closing || assignment_.aimed != tried_; };
        // Without a target there is nothing that a server could have lost.
        if (watch_.count() == 0 || assignment_.aimed == 0) {
            assignment_.changed.wait(lock, woken);
            return false;
        }
        return !assignment_.changed.wait_for(lock, watch_, woken);
    }

    EngineReport try_once(const EngineTarget& target) {
        EngineReport report = blank();
        report.target = target.step;
        const Stopwatch watch;
        auto done = without_throwing([&] { return session_->bring(target, report); });
        if (!done) report.error = std::move(done).error();
        report.seconds = watch.seconds();
        return report;
    }

    bool differs(const EngineReport& report) const {
        const auto text = [](const EngineReport& of) { return of.error ? of.error->text : ""; };
        return text(report) != text(latest_);
    }

    Assignment& assignment_;
    const Milliseconds watch_;
    const std::stop_token stop_;
    const std::string url_;
    const EngineKind kind_;
    ServerSignals signals_;                   // of themselves
    std::unique_ptr<ServerSession> session_;  // of the thread, but for look()
    EngineReport latest_;
    std::uint64_t tried_ = 0;  // the last of the targets that was tried
    bool away_ = false;        // nothing was heard from it in the last attempt
    std::jthread thread_;      // the last: it ends before the rest does
};

Result<void> check_servers(const EngineOptions& options, std::vector<Url>& urls) {
    if (options.servers.empty()) {
        return fail(ErrorKind::kInvalid, "no server is named; give the address of at least one");
    }
    if (options.run.empty()) return fail(ErrorKind::kInvalid, "no run is named");
    for (const EngineServer& server : options.servers) {
        auto url = parse_url(server.url);
        if (!url || url->host.empty() || !url->query.empty()) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("{} is no address of a server; write http://host:port",
                                    shown(server.url)));
        }
        const auto same = [&](const Url& other) { return other.text() == url->text(); };
        if (std::ranges::any_of(urls, same)) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("the server {} is named twice", url->text()));
        }
        urls.push_back(std::move(*url));
    }
    return {};
}

/// Paths are relative to this process, which is not where the servers run.
std::string address_for_others(const std::string& run) {
    if (run.find("://") != std::string::npos) return run;
    std::error_code ignored;
    return std::filesystem::absolute(run, ignored).lexically_normal().string();
}

}  // namespace

std::string_view name_of(EngineKind kind) {
    return kind == EngineKind::kVllm ? "vllm" : "sglang";
}

struct EngineDriver::State {
    Assignment assignment;
    std::vector<std::unique_ptr<Worker>> workers;

    ~State() {
        {
            const std::scoped_lock lock(assignment.mutex);
            assignment.closing = true;
            assignment.changed.notify_all();
        }
        for (const auto& worker : workers) worker->end();
        workers.clear();
    }
};

EngineDriver::EngineDriver(std::unique_ptr<State> state) : state_(std::move(state)) {}
EngineDriver::EngineDriver(EngineDriver&&) noexcept = default;
EngineDriver& EngineDriver::operator=(EngineDriver&&) noexcept = default;
EngineDriver::~EngineDriver() = default;

Result<EngineDriver> EngineDriver::open(const EngineOptions& options) {
    std::vector<Url> urls;
    WISP_TRY(check_servers(options, urls));
    const auto http = std::make_shared<HttpClient>(std::string(), "SSL_CERT_FILE");
    SessionSettings settings{address_for_others(options.run),
                             options.trust,
                             options.pause,
                             options.answer_timeout,
                             options.update_timeout,
                             options.sglang_loader,
                             options.min_serial,
                             options.run_id};
    auto state = std::make_unique<State>();
    state->assignment.on_report = options.on_report;
    for (std::size_t i = 0; i < urls.size(); ++i) {
        const EngineServer& server = options.servers[i];
        auto worker = std::make_unique<Worker>(state->assignment, server, options);
        ServerCall call(http, urls[i], server.api_key, options.connect_timeout, worker->signals());
        worker->start(server.kind == EngineKind::kVllm
                          ? make_vllm_session(std::move(call), settings)
                          : make_sglang_session(std::move(call), settings));
        state->workers.push_back(std::move(worker));
    }
    return EngineDriver(std::move(state));
}

void EngineDriver::aim(const EngineTarget& target) {
    const std::scoped_lock lock(state_->assignment.mutex);
    state_->assignment.target = target;
    ++state_->assignment.aimed;
    state_->assignment.changed.notify_all();
}

std::vector<EngineReport> EngineDriver::update(const EngineTarget& target) {
    Assignment& assignment = state_->assignment;
    std::unique_lock lock(assignment.mutex);
    assignment.target = target;
    const std::uint64_t aim = ++assignment.aimed;
    assignment.changed.notify_all();
    std::vector<const Worker*> away_before;
    for (const auto& worker : state_->workers) {
        if (worker->is_away()) away_before.push_back(worker.get());
    }
    const auto patience = std::chrono::steady_clock::now() + kPatienceWithTheAway;
    const auto done = [&](const auto& worker) { return worker->is_done(aim); };
    const auto present_done = [&](const auto& worker) {
        return worker->is_done(aim) ||
               std::ranges::find(away_before, worker.get()) != away_before.end();
    };
    const auto answered = [&] { return std::ranges::all_of(state_->workers, present_done); };
    while (!assignment.changed.wait_for(lock, kStopLook, answered) && !stopped()) {
    }
    const auto all_done = [&] { return std::ranges::all_of(state_->workers, done); };
    if (!stopped()) assignment.changed.wait_until(lock, patience, all_done);
    std::vector<EngineReport> reports;
    for (const auto& worker : state_->workers) {
        const bool away = std::ranges::find(away_before, worker.get()) != away_before.end();
        reports.push_back(worker->is_done(aim) ? worker->latest()
                          : away               ? worker->still_away(target)
                                               : worker->still_under_way(target));
    }
    return reports;
}

std::vector<EngineReport> EngineDriver::look() const {
    std::vector<EngineReport> reports(state_->workers.size());
    const StopScope* const scope = StopScope::innermost();
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < reports.size(); ++i) {
        const auto look = [&, scope, i] {
            const StopScope handed_on(scope);
            reports[i] = state_->workers[i]->look();
        };
        if (!start_thread(threads, look)) look();
    }
    threads.clear();
    return reports;
}

std::vector<EngineReport> EngineDriver::latest() const {
    const std::scoped_lock lock(state_->assignment.mutex);
    std::vector<EngineReport> reports;
    for (const auto& worker : state_->workers) reports.push_back(worker->latest());
    return reports;
}

}  // namespace wisp
