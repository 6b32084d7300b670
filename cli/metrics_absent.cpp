// Stands in for metrics.cpp where wisp is built without Prometheus.
#include "metrics.hpp"

namespace wisp::cli {

void add_metrics(Command&, std::string&) {}

Result<std::unique_ptr<MetricsEndpoint>> serve_metrics(const Common&, const std::string&,
                                                       const std::string&,
                                                       const std::map<std::string, std::string>&,
                                                       MetricsOf) {
    return std::unique_ptr<MetricsEndpoint>();
}

}  // namespace wisp::cli
