#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "demo_memory.hpp"
#include "demo_roles.hpp"
#include "output.hpp"

namespace wisp::cli {
namespace {

constexpr std::size_t kPiecesAtOnce = 16;

/// Trains as it is read, a few pieces at a time: fp32 masters from the weights of the last step and
/// the bits that rounding had taken from them, moved and rounded again.
class Training : public WeightStream {
  public:
    Training(const DemoRole& role, const Replica& baseline)
        : model_(*role.model),
          baseline_(baseline),
          threads_(role.threads),
          pieces_(pieces_of(model_)),
          low_(std::make_unique_for_overwrite<std::uint16_t[]>(model_.schema.total_elements())),
          room_(kPiecesAtOnce * kPieceElements) {}

    void begin(std::uint64_t step) {
        step_ = step;
        next_ = 0;
        seconds_ = 0;
    }
    double seconds() const { return seconds_; }

    const Schema& schema() const override { return model_.schema; }

    Result<void> restart() override {
        if (next_ == 0) return {};
        return fail(
            ErrorKind::kConflict,
            fmt::format("step {} cannot be trained twice: somebody else writes to this run; "
                        "name another place with --bucket",
                        step_));
    }

    Result<std::span<const WeightPiece>> next() override {
        const Stopwatch watch;
        const std::size_t count = std::min(kPiecesAtOnce, pieces_.size() - next_);
        given_.resize(count);
        on_threads(count, threads_, [&](std::size_t i) {
            const ModelPiece& piece = pieces_[next_ + i];
            const std::span weights(room_.data() + i * kPieceElements, piece.element_count);
            train(piece, weights);
            given_[i] = {piece.tensor, piece.first_element, std::as_bytes(weights), false};
        });
        next_ += count;
        seconds_ += watch.seconds();
        return std::span<const WeightPiece>(given_);
    }

  private:
    void train(const ModelPiece& piece, std::span<std::uint16_t> weights) const {
        const simulation::Stretch at{piece.tensor, piece.first_element};
        const std::span low(low_.get() + model_.first_elements[piece.tensor] + piece.first_element,
                            piece.element_count);
        if (step_ == 0) {
            std::vector<float> masters(piece.element_count);
            simulation::draw_masters(at, model_.tensors[piece.tensor].scale, masters);
            simulation::keep_low_bits(masters, low);
            simulation::round_masters(masters, weights);
        } else {
            simulation::step_split_masters(at, model_.optimizer, step_,
                                           weights_of(*baseline_.weights(), piece), low, weights);
        }
    }

    const DemoModel& model_;
    const Replica& baseline_;
    unsigned threads_;
    std::vector<ModelPiece> pieces_;
    std::unique_ptr<std::uint16_t[]> low_;
    std::vector<std::uint16_t> room_;
    std::vector<WeightPiece> given_;
    std::uint64_t step_ = 0;
    std::size_t next_ = 0;
    double seconds_ = 0;
};

nlohmann::ordered_json published_json(const PublishReport& report, double train_seconds,
                                      double publish_seconds) {
    return {{"event", "published"},
            {"step", report.step},
            {"seq", report.seq},
            {"changed_elements", report.changed_elements},
            {"total_elements", report.total_elements},
            {"delta_bytes", report.delta_bytes},
            {"anchor_bytes", report.anchor_bytes},
            {"uploaded_bytes", report.uploaded_bytes},
            {"state", to_text(report.state)},
            {"train_seconds", train_seconds},
            {"publish_seconds", publish_seconds}};
}

}  // namespace

Result<void> run_demo_trainer(const DemoRole& role, const std::function<void()>& wait,
                              const Tell& tell) {
    const auto where = open_location(role.run);
    if (!where) return std::unexpected(where.error());
    if (const auto made = init_run(*where, {}); !made) return std::unexpected(made.error());
    tell({{"event", "started"}, {"run", role.run}});

    const auto baseline = open_mapped_replica(role.folder, role.threads, {});
    if (!baseline) return std::unexpected(baseline.error());
    PublishOptions options;
    options.threads = role.threads;
    auto publisher = Publisher::open(*where, **baseline, options);
    if (!publisher) return std::unexpected(publisher.error());

    Training training(role, **baseline);
    for (std::uint64_t step = 0; step <= role.last_step; ++step) {
        if (step > 0) wait();
        const Stopwatch watch;
        training.begin(step);
        const auto report = publisher->publish(training, step);
        if (!report) return std::unexpected(report.error());
        const double trained = training.seconds();
        tell(published_json(*report, trained, watch.seconds() - trained));
    }
    return {};
}

}  // namespace wisp::cli
