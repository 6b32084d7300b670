#include "metrics.hpp"

#include <fmt/format.h>
#include <httplib.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <thread>

#include "diagnostics.hpp"
#include "listening.hpp"
#include "version.hpp"

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

/// Names are refused: what they lead to is not for a monitored program to find out.
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
    if (address.host.starts_with('[') && address.host.ends_with(']')) {
        address.host = address.host.substr(1, address.host.size() - 2);
    }
    if (address.host.find_first_not_of("0123456789abcdefABCDEF.:") != std::string::npos) {
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

/// What can go wrong and be worked around, so that each is there, as 0, before it first happens:
/// Prometheus sees no increase in a series that begins at 1.
constexpr std::array kFaults = {
    ErrorKind::kNotFound,    ErrorKind::kCorrupt,  ErrorKind::kWrongBase, ErrorKind::kDenied,
    ErrorKind::kUnavailable, ErrorKind::kConflict, ErrorKind::kForked,    ErrorKind::kGap,
    ErrorKind::kNoRun,       ErrorKind::kNoSpace};

bool may_be_verify_failure(ErrorKind kind) {
    return kind == ErrorKind::kCorrupt || kind == ErrorKind::kWrongBase ||
           kind == ErrorKind::kDenied || kind == ErrorKind::kForked;
}

/// What was read is not what it should be. A store that refuses to be read, with credentials that
/// have expired, says nothing of the kind.
bool is_verify_failure(const FollowEvent& event) {
    return may_be_verify_failure(event.fault_kind) &&
           (event.fault_kind != ErrorKind::kDenied || event.distrusted);
}

class Endpoint : public MetricsEndpoint {
  public:
    Endpoint(MetricsOf what, const Labels& labels)
        : registry_(prom::Registry::InsertBehavior::Merge), families_(registry_, labels) {
        families_
            .gauge("wisp_build_info", "1, with the version of this program as labels",
                   {{"version", kVersion}, {"commit", kCommit}})
            .Set(1);
        if (what == MetricsOf::kPublisher) {
            for (const ErrorKind kind : kFaults) publish_failures(kind);
        } else {
            for (const ErrorKind kind : kFaults) faults(kind);
        }
        // One who scrapes, and one who looks.
        server_.new_task_queue = [] { return new httplib::ThreadPool(2); };
        server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
            response.set_content(prom::TextSerializer().Serialize(registry_.Collect()),
                                 "text/plain; version=0.0.4; charset=utf-8");
        });
    }
    ~Endpoint() override { server_.stop(); }

    Result<void> listen(const Address& address) {
        const auto port = listen_alone(server_, address.host, address.port);
        if (!port) return std::unexpected(port.error());
        const std::string host = address.host == "0.0.0.0" ? "127.0.0.1" : address.host;
        url_ = fmt::format("http://{}:{}/metrics",
                           host.find(':') == std::string::npos ? host : "[" + host + "]", *port);
        thread_ = std::jthread([this] { server_.listen_after_bind(); });
        // Before it runs, stop() would be forgotten.
        while (!server_.is_running()) std::this_thread::yield();
        return {};
    }

    std::string url() const override { return url_; }

    void on_event(const FollowEvent& event) override {
        position(event);
        // A poll that found nothing new is a success too: it says that the replica is current.
        if (event.kind != FollowEvent::Kind::kFault) succeeded();
        const bool joined = event.kind == FollowEvent::Kind::kJoined;
        if (joined || event.kind == FollowEvent::Kind::kApplied) moved(event, joined);
        if (event.kind != FollowEvent::Kind::kFault) return;
        faults(event.fault_kind).Increment();
        if (is_verify_failure(event)) verify_failures(event.fault_kind)->Increment();
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
        if (report.ok()) succeeded();
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
        succeeded();
    }

    void on_publish_failure(ErrorKind kind) override { publish_failures(kind).Increment(); }

  private:
    static Labels reason_of(ErrorKind kind) { return {{"reason", std::string(name_of(kind))}}; }

    prom::Counter* verify_failures(ErrorKind kind) {
        return &families_.counter("wisp_verify_failures_total",
                                  "Objects or states that were not what they say", reason_of(kind));
    }

    prom::Counter& faults(ErrorKind kind) {
        if (may_be_verify_failure(kind)) verify_failures(kind);
        return families_.counter("wisp_faults_total", "Failures that were worked around",
                                 reason_of(kind));
    }

    prom::Counter& publish_failures(ErrorKind kind) {
        return families_.counter("wisp_publish_failures_total", "Publishes that failed",
                                 reason_of(kind));
    }

    void succeeded() {
        families_
            .gauge("wisp_last_success_timestamp_seconds",
                   "When this program last did what it is for, since 1970")
            .Set(static_cast<double>(system_clock()->now_ms()) / 1000);
    }

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

    prom::Registry registry_;
    Families families_;
    httplib::Server server_;
    std::string url_;
    std::jthread thread_;
};

}  // namespace

Result<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::serve(const std::string& address,
                                                                MetricsOf what,
                                                                const Labels& labels) {
    const auto parsed = parse_address(address);
    if (!parsed) return std::unexpected(parsed.error());
    auto endpoint = std::make_unique<Endpoint>(what, labels);
    if (const auto listening = endpoint->listen(*parsed); !listening) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("metrics cannot be served: {}; choose another port",
                                printable(listening.error().text)));
    }
    return endpoint;
}

void add_metrics(Command& verb, std::string& address) {
    verb.add_option("--metrics", address,
                    "Serve Prometheus metrics at :PORT or IP:PORT; port 0 takes a free one")
        ->type_name("ADDRESS");
}

Result<std::unique_ptr<MetricsEndpoint>> serve_metrics(
    const Common& common, const std::string& verb, const std::string& address,
    const std::map<std::string, std::string>& labels, MetricsOf what) {
    if (address.empty()) return std::unique_ptr<MetricsEndpoint>();
    auto endpoint = MetricsEndpoint::serve(address, what, labels);
    // A port that nobody chose must be told even when everything else is silent.
    if (endpoint && (!common.quiet || address.ends_with(":0"))) {
        tell(Level::kInfo, verb, "metrics at " + (*endpoint)->url());
    }
    return endpoint;
}

}  // namespace wisp::cli
