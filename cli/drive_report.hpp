// What `wisp follow --vllm URL` tells while it drives servers: lines, JSON, metrics and the log.
//
// Told from several threads.
#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "event_log.hpp"
#include "metrics.hpp"
#include "output.hpp"
#include "systemd_notice.hpp"

namespace wisp::cli {

class DriveReporter {
  public:
    /// What is not wished for is absent.
    DriveReporter(const Common& common, std::string run, std::unique_ptr<MetricsEndpoint> metrics,
                  std::optional<EventLog> log);

    /// The run stands here now.
    void tell_head(const CommitSummary& head, std::int64_t age_ms);
    /// A server moved, failed or recovered.
    void tell(const EngineReport& report);
    /// The run cannot be looked at; it is tried again. The same failure is told once.
    void tell_run_fault(const Error& error);
    /// Nothing to do; told once, until something happens.
    void tell_waiting(const std::optional<CommitSummary>& head, std::int64_t age_ms);
    void finish(const std::optional<CommitSummary>& head, const std::vector<EngineReport>& servers,
                bool stopped, double seconds);

  private:
    void write(const nlohmann::ordered_json& event);
    void complain(const std::string& text);

    Common common_;
    std::string run_;
    std::unique_ptr<MetricsEndpoint> metrics_;
    std::optional<EventLog> log_;
    ServiceNotice service_;
    std::mutex mutex_;
    std::optional<Error> run_fault_;
    std::uint64_t moves_ = 0;
    std::uint64_t faults_ = 0;
    bool waiting_ = false;
};

}  // namespace wisp::cli
