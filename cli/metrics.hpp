// What Prometheus is told about a follower, a publisher or servers, over HTTP at /metrics.
//
// A metric may be touched while it is being read. Addresses are "host:port" with an IP address as
// host; ":port" is every interface, as Prometheus itself writes it, and port 0 any free one.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "command.hpp"
#include "output.hpp"

namespace wisp::cli {

/// Which program is watched: failures that it may have are told from the start.
enum class MetricsOf { kFollower, kPublisher };

class MetricsEndpoint {
  public:
    /// `labels` go with every metric. kInvalid when nothing can be served there.
    static Result<std::unique_ptr<MetricsEndpoint>> serve(
        const std::string& address, MetricsOf what,
        const std::map<std::string, std::string>& labels);
    virtual ~MetricsEndpoint() = default;

    /// Where it can be read from this machine.
    virtual std::string url() const = 0;
    virtual void on_event(const FollowEvent& event) = 0;
    /// Where the run stands, and what a server answered, of a process that drives servers.
    virtual void on_head(const CommitSummary& head, std::int64_t age_ms) = 0;
    virtual void on_server(const EngineReport& report) = 0;
    virtual void on_published(const PublishReport& report) = 0;
    /// An end that was not wished for.
    virtual void on_publish_failure(ErrorKind kind) = 0;
};

/// --metrics.
void add_metrics(Command& verb, std::string& address);

/// Nothing when `address` is empty; says on stderr where the metrics are.
Result<std::unique_ptr<MetricsEndpoint>> serve_metrics(
    const Common& common, const std::string& verb, const std::string& address,
    const std::map<std::string, std::string>& labels, MetricsOf what = MetricsOf::kFollower);

}  // namespace wisp::cli
