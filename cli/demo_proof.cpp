#include "demo_proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "process_stop.hpp"

namespace wisp::cli {
namespace {

constexpr std::uint64_t kInCache = std::uint64_t{1} << 15;

struct Difference {
    std::size_t copy = 0;
    std::size_t tensor = 0;
    std::uint64_t element = 0;
    std::uint16_t expected = 0;
    std::uint16_t found = 0;
};

std::optional<Difference> first_difference(const ModelPiece& piece,
                                           std::span<const std::uint16_t> expected,
                                           const std::vector<Checkpoint>& copies) {
    for (std::size_t i = 0; i < copies.size(); ++i) {
        const auto held = weights_of(copies[i], piece);
        if (std::ranges::equal(held, expected)) continue;
        const auto met = std::ranges::mismatch(held, expected);
        return Difference{i, piece.tensor,
                          piece.first_element + static_cast<std::uint64_t>(met.in1 - held.begin()),
                          *met.in2, *met.in1};
    }
    return std::nullopt;
}

std::optional<Difference> compare(const DemoModel& model, const ModelPiece& piece,
                                  std::uint64_t last_step, const std::vector<Checkpoint>& copies) {
    std::vector<float> masters(kInCache);
    std::vector<std::uint16_t> expected(kInCache);
    for (std::uint64_t done = 0; done < piece.element_count; done += kInCache) {
        const std::uint64_t count = std::min(kInCache, piece.element_count - done);
        const ModelPiece part{piece.tensor, piece.first_element + done, count};
        const simulation::Stretch at{part.tensor, part.first_element};
        const std::span some(masters.data(), count);
        const std::span rounded(expected.data(), count);
        simulation::draw_masters(at, model.tensors[part.tensor].scale, some);
        for (std::uint64_t step = 1; step <= last_step; ++step) {
            simulation::step_masters(at, model.optimizer, step, some);
        }
        simulation::round_masters(some, rounded);
        auto difference = first_difference(part, rounded, copies);
        if (difference) return difference;
    }
    return std::nullopt;
}

std::string name_of_copy(std::size_t copy) {
    return copy == 0 ? "the trainer" : fmt::format("follower {}", copy);
}

}  // namespace

Result<DemoProof> prove_demo(const DemoModel& model,
                             const std::vector<std::filesystem::path>& files,
                             std::uint64_t last_step, const std::string& committed_state,
                             unsigned threads) {
    std::vector<Checkpoint> copies;
    for (const std::filesystem::path& file : files) {
        auto opened = Checkpoint::open(file);
        if (!opened) return std::unexpected(opened.error());
        auto same =
            require_same_schema(model.schema, "the demo's model", opened->schema(), file.string());
        if (!same) return std::unexpected(same.error());
        copies.push_back(std::move(*opened));
    }
    const std::vector<ModelPiece> pieces = pieces_of(model);
    std::mutex mutex;
    std::optional<Difference> met;
    on_threads(pieces.size(), threads, [&](std::size_t i) {
        if (interrupted()) return;
        const auto difference = compare(model, pieces[i], last_step, copies);
        if (!difference) return;
        const std::lock_guard lock(mutex);
        met = difference;
    });
    if (interrupted()) return fail(ErrorKind::kUnavailable, "stopped as asked");
    if (met) {
        return fail(
            ErrorKind::kCorrupt,
            fmt::format("{} holds other weights than training gives: element {} of {} is "
                        "{:#06x} instead of {:#06x}; please report this as a bug",
                        name_of_copy(met->copy), met->element,
                        model.schema.tensors()[met->tensor].name, met->found, met->expected));
    }
    // The copies are equal, so one of them speaks for all.
    const auto digest = digest_of(copies.back(), threads);
    if (!digest) return std::unexpected(digest.error());
    if (to_text(*digest) != committed_state) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("all are at state {}, and {} was committed; please report this as "
                                "a bug",
                                to_text(*digest), committed_state));
    }
    return DemoProof{committed_state, model.schema.total_elements() * copies.size()};
}

}  // namespace wisp::cli
