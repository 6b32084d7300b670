#include <cmath>
#include <map>

#include "base/try.hpp"
#include "checkpoint/blocks.hpp"
#include "codec/block_layout.hpp"
#include "codec/sparse_header.hpp"
#include "delta/verified_delta.hpp"
#include "observe/binade.hpp"
#include "observe/fetched_delta.hpp"
#include "wisp/control.hpp"
#include "wisp/history.hpp"

namespace wisp {
namespace {

struct Forecast {
    double changing = 0;
    double elements = 0;
};

/// What the header of a sparse block says of each exponent inside its window. Those at the ends
/// stand for all beyond, too, and are right for them only as a mean.
Result<void> add_block(std::span<const std::byte> block, const DtypeTraits& traits,
                       std::uint64_t element_count, std::map<int, Forecast>& by_binade) {
    if (block.empty() || static_cast<BlockKind>(block[0]) != BlockKind::kSparse) return {};
    const ExponentField field = exponent_field(traits);
    ByteReader in(block.subspan(1));
    WISP_ASSIGN(const SparseHeader header, parse_sparse_header(in, field, element_count));
    const WeightTable weights = header.weights();
    const double hazard = std::ldexp(1.0, static_cast<int>(header.hazard_shift));
    const auto elements = static_cast<double>(element_count);
    for (unsigned i = 0; i <= header.window.top; ++i) {
        Forecast& forecast = by_binade[binade_of(header.window.low + i, traits)];
        forecast.changing += elements * -std::expm1(-static_cast<double>(weights[i]) / hazard);
        forecast.elements += elements;
    }
    return {};
}

Result<std::vector<ForecastShare>> forecast_of(const VerifiedDelta& delta) {
    std::map<int, Forecast> by_binade;
    const std::uint64_t block_elements = std::uint64_t{1} << delta.log2_block_elements();
    for (const DeltaTensor& tensor : delta.tensors()) {
        const DtypeTraits& traits = traits_of(tensor.info.dtype);
        if (!has_binades(tensor.info.dtype) || !tensor.shape_known) continue;
        std::uint64_t left = element_count_of(tensor.info);
        for (const auto& block : tensor.blocks) {
            const std::uint64_t count = std::min(block_elements, left);
            left -= count;
            WISP_TRY(add_block(block, traits, count, by_binade));
        }
    }
    std::vector<ForecastShare> shares;
    for (const auto& [binade, forecast] : by_binade) {
        shares.push_back({binade, forecast.changing / forecast.elements});
    }
    return shares;
}

}  // namespace

Result<StepReport> report_step(const Location& where, std::uint64_t seq,
                               const RunOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const FetchedDelta fetched, fetch_delta_of(where, seq, options));
    StepReport report;
    WISP_ASSIGN(report.file, inspect(fetched.path));
    WISP_ASSIGN(const VerifiedDelta delta, verify_delta_file(fetched.path));
    WISP_ASSIGN(report.forecast, forecast_of(delta));
    return report;
}

}  // namespace wisp
