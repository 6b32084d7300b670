#include "drive_report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "diagnostics.hpp"
#include "live_line.hpp"
#include "run_options.hpp"

namespace wisp::cli {
namespace {

using Json = nlohmann::ordered_json;

Json optional_number(const std::optional<std::uint64_t>& value) {
    return value ? Json(*value) : Json();
}

Json server_json(const EngineReport& report) {
    Json json = {{"server", report.url},
                 {"engine", name_of(report.kind)},
                 {"target", optional_number(report.target)},
                 {"served", optional_number(report.served)},
                 {"ok", report.ok()}};
    if (report.error) {
        json["error"] = name_of(report.error->kind);
        json["message"] = report.error->text;
    }
    return json;
}

Json event_of(const EngineReport& report) {
    Json json = {{"event", report.ok() ? "served" : "fault"}};
    json.update(server_json(report));
    json["moved"] = report.moved;
    json["initialized"] = report.initialized;
    json["pause_seconds"] = report.pause_seconds;
    json["seconds"] = report.seconds;
    json["phases"] = Json::object();
    for (const auto& [name, seconds] : report.phases) json["phases"][name] = seconds;
    json["faults"] = report.faults;
    return json;
}

std::string line_of(const EngineReport& report) {
    const std::string step = report.served ? std::to_string(*report.served) : "?";
    std::string how = report.initialized ? ", set up first" : "";
    if (!report.moved) return fmt::format("step {}: {} serves it already{}", step, report.url, how);
    return fmt::format("step {}: {} serves it{}; paused {}, took {}", step, report.url, how,
                       human_seconds(report.pause_seconds), human_seconds(report.seconds));
}

}  // namespace

DriveReporter::DriveReporter(const Common& common, std::string run,
                             std::unique_ptr<MetricsEndpoint> metrics, std::optional<EventLog> log)
    : common_(common), run_(std::move(run)), metrics_(std::move(metrics)), log_(std::move(log)) {}

void DriveReporter::complain(const std::string& text) {
    cli::tell(Level::kWarning, "follow", text);
}

void DriveReporter::write(const Json& event) {
    if (common_.json) {
        print_json(event);
        std::fflush(stdout);
    }
    if (!log_) return;
    Json line = {{"run", run_}};
    line.update(event);
    if (const auto written = log_->write(line); !written) {
        // The servers matter more than the log.
        complain(fmt::format("{}; going on without it", written.error().text));
        log_.reset();
    }
}

void DriveReporter::tell_head(const CommitSummary& head, std::int64_t age_ms) {
    const std::scoped_lock lock(mutex_);
    waiting_ = false;
    run_fault_.reset();
    if (metrics_) metrics_->on_head(head, age_ms);
    service_.tell(fmt::format("bringing servers to step {}, seq {}", head.step, head.seq));
    write({{"event", "published"},
           {"seq", head.seq},
           {"epoch", head.epoch},
           {"step", head.step},
           {"state", to_text(head.state)},
           {"commit_age_ms", age_ms}});
}

void DriveReporter::tell(const EngineReport& report) {
    const std::scoped_lock lock(mutex_);
    waiting_ = false;
    if (metrics_) metrics_->on_server(report);
    moves_ += report.moved ? 1 : 0;
    faults_ += report.ok() ? 0 : 1;
    write(event_of(report));
    clear_live_line();
    for (const std::string& fault : report.faults) {
        complain(fmt::format("{} tells: {}", report.url, fault));
    }
    service_.tell(report.error ? report.error->text : line_of(report));
    if (report.error) {
        complain(fmt::format("{}; going on", report.error->text));
    } else if (!common_.json && !common_.quiet) {
        fmt::print("{}\n", line_of(report));
        std::fflush(stdout);
    }
}

void DriveReporter::tell_run_fault(const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (run_fault_ && run_fault_->text == error.text) return;
    run_fault_ = error;
    // When it is well again, that is told.
    waiting_ = false;
    ++faults_;
    service_.tell(error.text);
    write({{"event", "fault"}, {"error", name_of(error.kind)}, {"message", error.text}});
    complain(fmt::format("{}; going on", error.text));
}

void DriveReporter::tell_waiting(const std::optional<CommitSummary>& head, std::int64_t age_ms) {
    const std::scoped_lock lock(mutex_);
    run_fault_.reset();
    if (metrics_ && head) metrics_->on_head(*head, age_ms);
    if (!std::exchange(waiting_, true)) {
        service_.tell(head ? fmt::format("waiting after step {}, seq {}", head->step, head->seq)
                           : "waiting for the first step");
        write({{"event", "waiting"}, {"step", head ? Json(head->step) : Json()}});
    }
    if (common_.json || !draws_live_line(common_)) return;
    draw_text(head ? fmt::format("waiting after step {}, last commit {} ago", head->step,
                                 human_age(age_ms))
                   : "waiting for the first step");
}

void DriveReporter::finish(const std::optional<CommitSummary>& head,
                           const std::vector<EngineReport>& servers, bool stopped, double seconds) {
    const std::scoped_lock lock(mutex_);
    clear_live_line();
    bool ok = true;
    Json list = Json::array();
    for (const EngineReport& report : servers) {
        ok = ok && report.ok();
        list.push_back(server_json(report));
    }
    if (common_.json) {
        print_json({{"verb", "follow"},
                    {"ok", ok},
                    {"run", run_},
                    {"step", head ? Json(head->step) : Json()},
                    {"servers", list},
                    {"stopped", stopped},
                    {"moves", moves_},
                    {"faults", faults_},
                    {"seconds", seconds}});
    } else if (!common_.quiet && !head) {
        fmt::print("nothing was published yet\n");
    }
}

}  // namespace wisp::cli
