#include "metrics.hpp"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <charconv>
#include <exception>

namespace wisp::cli {
namespace {

namespace prom = prometheus;
using Labels = std::map<std::string, std::string>;

const prom::Histogram::BucketBoundaries kSeconds = {0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5,
                                                    1,     2.5,   5,    10,   30,  60,   300};

struct Address {
    std::string host;
    std::uint16_t port = 0;
};

/// Checked letter by letter, since the web server gives commas and trailing letters meanings of
/// their own.
Result<Address> parse_address(const std::string& text) {
    const auto wrong = [&] {
        return fail(ErrorKind::kInvalid,
                    fmt::format("'{}' is no address for metrics; write :9400 for every interface, "
                                "or an IP address like 127.0.0.1:9400",
                                printable(text.substr(0, 80))));
    };
    const std::size_t colon = text.rfind(':');
    if (colon == std::string::npos) return wrong();
    Address address{text.substr(0, colon), 0};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    if (error != std::errc() || stop != end) return wrong();
    if (address.host.empty()) address.host = "0.0.0.0";
    if (address.host == "localhost") address.host = "127.0.0.1";
    if (address.host.find_first_not_of("0123456789abcdefABCDEF.:[]") != std::string::npos) {
        return wrong();
    }
    return address;
}

/// Families of one registry, all with the same labels.
class Families {
  public:
    Families(prom::Registry& registry, Labels labels)
        : registry_(registry), labels_(std::move(labels)) {}

    prom::Counter& counter(const char* name, const char* help, const Labels& more = {}) {
        return prom::BuildCounter().Name(name).Help(help).Register(registry_).Add(with(more));
    }
    prom::Gauge& gauge(const char* name, const char* help, const Labels& more = {}) {
        return prom::BuildGauge().Name(name).Help(help).Register(registry_).Add(with(more));
    }
    prom::Histogram& seconds(const char* name, const char* help, const Labels& more = {}) {
        return prom::BuildHistogram().Name(name).Help(help).Register(registry_).Add(with(more),
                                                                                    kSeconds);
    }

  private:
    Labels with(const Labels& more) const {
        Labels all = labels_;
        all.insert(more.begin(), more.end());
        return all;
    }

    prom::Registry& registry_;
    Labels labels_;
};

bool is_verify_failure(ErrorKind kind) {
    return kind == ErrorKind::kCorrupt || kind == ErrorKind::kWrongBase ||
           kind == ErrorKind::kDenied || kind == ErrorKind::kForked;
}

class Endpoint : public MetricsEndpoint {
  public:
    Endpoint(const Address& address, const Labels& labels)
        : registry_(std::make_shared<prom::Registry>(prom::Registry::InsertBehavior::Merge)),
          families_(*registry_, labels),
          exposer_(fmt::format("{}:{}", address.host, address.port), 1) {
        exposer_.RegisterCollectable(registry_);
        const auto ports = exposer_.GetListeningPorts();
        const std::string host = address.host == "0.0.0.0" ? "127.0.0.1" : address.host;
        url_ =
            fmt::format("http://{}:{}/metrics", host, ports.empty() ? address.port : ports.front());
    }

    std::string url() const override { return url_; }

    void on_event(const FollowEvent& event) override {
        position(event);
        const bool joined = event.kind == FollowEvent::Kind::kJoined;
        if (joined || event.kind == FollowEvent::Kind::kApplied) moved(event, joined);
        if (event.kind != FollowEvent::Kind::kFault) return;
        const Labels reason = {{"reason", std::string(name_of(event.fault_kind))}};
        families_.counter("wisp_faults_total", "Failures that were worked around", reason)
            .Increment();
        if (!is_verify_failure(event.fault_kind)) return;
        families_
            .counter("wisp_verify_failures_total", "Objects or states that were not what they say",
                     reason)
            .Increment();
    }

    void on_head(const CommitSummary& head, std::int64_t age_ms) override {
        families_.gauge("wisp_run_step", "The newest step of the run")
            .Set(static_cast<double>(head.step));
        families_.gauge("wisp_commit_age_seconds", "Age of the newest commit known")
            .Set(static_cast<double>(age_ms) / 1000);
    }

    void on_server(const EngineReport& report) override {
        const Labels server = {{"server", report.url},
                               {"engine", std::string(name_of(report.kind))}};
        families_.gauge("wisp_server_up", "1 when the server serves what it should", server)
            .Set(report.ok() ? 1 : 0);
        if (report.served) {
            families_.gauge("wisp_server_step", "The step that the server serves", server)
                .Set(static_cast<double>(*report.served));
        }
        if (report.moved) {
            families_
                .seconds("wisp_server_pause_seconds", "How long a server did not generate", server)
                .Observe(report.pause_seconds);
            families_.seconds("wisp_server_update_seconds", "From the target to the switch", server)
                .Observe(report.seconds);
        }
        if (!report.error) return;
        Labels reason = server;
        reason["reason"] = name_of(report.error->kind);
        families_.counter("wisp_server_faults_total", "Attempts that failed", reason).Increment();
    }

    void on_published(const PublishReport& report) override {
        const auto phase = [&](const char* name, double seconds) {
            families_
                .seconds("wisp_publish_seconds", "Time of each phase of a publish",
                         {{"phase", name}})
                .Observe(seconds);
        };
        phase("diff", report.diff_seconds);
        phase("upload", report.upload_seconds);
        phase("commit", report.commit_seconds);
        phase("baseline", report.baseline_seconds);
        families_.counter("wisp_published_total", "Steps published").Increment();
        families_.counter("wisp_uploaded_bytes_total", "Bytes written to the bucket")
            .Increment(static_cast<double>(report.uploaded_bytes));
        families_.gauge("wisp_published_step", "The newest step published")
            .Set(static_cast<double>(report.step));
    }

    void on_publish_failure(ErrorKind kind) override {
        families_
            .counter("wisp_publish_failures_total", "Publishes that failed",
                     {{"reason", std::string(name_of(kind))}})
            .Increment();
    }

  private:
    void position(const FollowEvent& event) {
        const auto set = [&](const char* name, const char* help, auto value) {
            families_.gauge(name, help).Set(static_cast<double>(value));
        };
        set("wisp_replica_step", "The step this replica holds", event.step);
        set("wisp_replica_seq", "The last commit this replica has taken in", event.seq);
        set("wisp_replica_lag_steps", "States between this replica and the newest commit known",
            event.lag_steps);
        set("wisp_commit_age_seconds", "Age of the newest commit known",
            static_cast<double>(event.commit_age_ms) / 1000);
        set("wisp_stale", "1 when the newest commit has expired or is older than allowed",
            event.expired ? 1 : 0);
    }

    void moved(const FollowEvent& event, bool joined) {
        families_.seconds("wisp_fetch_seconds", "Time to fetch a move")
            .Observe(event.fetch_seconds);
        families_.seconds("wisp_verify_seconds", "Time to verify a move")
            .Observe(event.verify_seconds);
        families_.seconds("wisp_apply_seconds", "Time to decode and write a move")
            .Observe(event.apply_seconds);
        families_.counter("wisp_fetched_bytes_total", "Bytes read from the bucket")
            .Increment(static_cast<double>(event.fetched_bytes));
        families_.counter("wisp_applied_total", "Moves by deltas").Increment(joined ? 0 : 1);
        families_.counter("wisp_joined_total", "Moves by a whole state").Increment(joined ? 1 : 0);
    }

    std::shared_ptr<prom::Registry> registry_;
    Families families_;
    prom::Exposer exposer_;
    std::string url_;
};

}  // namespace

Result<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::serve(
    const std::string& address, const std::map<std::string, std::string>& labels) {
    const auto parsed = parse_address(address);
    if (!parsed) return std::unexpected(parsed.error());
    // The library throws when it cannot listen.
    try {
        return std::make_unique<Endpoint>(*parsed, labels);
    } catch (const std::exception& error) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("metrics cannot be served on '{}': {}; choose another port",
                                printable(address), printable(error.what())));
    }
}

void add_metrics(Command& verb, std::string& address) {
    verb.add_option("--metrics", address,
                    "Serve Prometheus metrics at :PORT or IP:PORT; port 0 takes a free one")
        ->type_name("ADDRESS");
}

Result<std::unique_ptr<MetricsEndpoint>> serve_metrics(
    const Common& common, const std::string& verb, const std::string& address,
    const std::map<std::string, std::string>& labels) {
    if (address.empty()) return std::unique_ptr<MetricsEndpoint>();
    auto endpoint = MetricsEndpoint::serve(address, labels);
    // A port that nobody chose must be told even when everything else is silent.
    if (endpoint && (!common.quiet || address.ends_with(":0"))) {
        fmt::print(stderr, "wisp {}: metrics at {}\n", verb, (*endpoint)->url());
    }
    return endpoint;
}

}  // namespace wisp::cli
