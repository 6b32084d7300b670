#include "sim/sim_ranks.hpp"

#include <fmt/format.h>

#include "base/try.hpp"
#include "checkpoint/blocks.hpp"

namespace wisp::sim {

SimRanks::SimRanks(World& world, Actor& actor, Location run, std::size_t count, Random& random)
    : world_(world),
      actor_(actor),
      run_(std::move(run)),
      random_(random),
      log2_(6 + static_cast<unsigned>(random.below(3))),
      inline_bytes_(random.chance(0.5) ? 0 : random.below(400)),
      spans_(count),
      writers_(count) {}

void SimRanks::take_schema(const Schema& schema) {
    if (schema_ && schema_->digest() == schema.digest()) return;
    schema_ = schema;
    const BlockGrid grid(schema, log2_);
    for (std::size_t rank = 0; rank < spans_.size(); ++rank) {
        spans_[rank].clear();
        writers_[rank].reset();
    }
    // As scattered as can be.
    for (std::uint64_t block = 0; block < grid.count(); ++block) {
        const BlockRange range = grid[block];
        spans_[block % spans_.size()].push_back({range.tensor, range.first_element >> log2_, 1});
    }
}

Result<ShardWriter> SimRanks::open(std::size_t rank) const {
    ShardOptions options;
    options.threads = options.parallel_uploads = 1;
    options.inline_bytes = inline_bytes_;
    options.part_bytes = 300;
    options.scratch = actor_.folder / fmt::format("rank{}", rank);
    return ShardWriter::open(run_, *schema_, rank, spans_[rank], options, log2_);
}

Result<std::vector<std::byte>> SimRanks::deliver_one(std::size_t rank, const ShardCall& call,
                                                     const Weights& weights) {
    if (!writers_[rank]) {
        WISP_ASSIGN(writers_[rank], open(rank));
    }
    ShardWriter& writer = *writers_[rank];
    if (call.part != ShardPart::kWhole && writer.base() != call.base) {
        const Model* committed = world_.bank().find(call.base);
        if (committed == nullptr) return fail(ErrorKind::kWrongBase, "nobody has that state");
        WISP_TRY(writer.adopt(*committed, call.base));
    }
    if (call.part != ShardPart::kAnchor) WISP_TRY(writer.find(call, views(rank, weights)));
    return writer.deliver(call);
}

Result<SimRanks::ShardManifests> SimRanks::deliver(const ShardCall& call, const Weights& weights) {
    ShardManifests manifests;
    for (std::size_t rank = 0; rank < spans_.size(); ++rank) {
        if (world_.weather() == Weather::kStorm && random_.chance(0.02)) {
            world_.tell(actor_, fmt::format("loses rank {}", rank));
            writers_[rank].reset();
            return fail(ErrorKind::kUnavailable, "a rank does not answer");
        }
        WISP_ASSIGN(auto manifest, deliver_one(rank, call, weights));
        manifests.push_back(std::move(manifest));
    }
    return manifests;
}

Result<void> SimRanks::advance(const StateDigest& state) {
    for (auto& writer : writers_) {
        if (writer) WISP_TRY(writer->advance(state));
    }
    return {};
}

Result<void> SimRanks::reconcile(const std::optional<StateDigest>& landing,
                                 const StateDigest& base) {
    if (landing && *landing == base) return advance(base);
    for (auto& writer : writers_) {
        if (writer) writer->drop();
    }
    return {};
}

std::vector<std::span<const std::byte>> SimRanks::views(std::size_t rank,
                                                        const Weights& weights) const {
    std::vector<std::span<const std::byte>> views;
    for (const BlockSpan& span : spans_[rank]) {
        const auto tensor = static_cast<std::size_t>(span.tensor);
        const TensorInfo& info = schema_->tensors()[tensor];
        BlockRange range;
        range.tensor = tensor;
        range.first_element = span.first_block << log2_;
        range.element_count =
            std::min(std::uint64_t{1} << log2_, element_count_of(info) - range.first_element);
        range.element_bytes = traits_of(info.dtype).element_bytes;
        views.push_back(range.of(weights.bytes(tensor)));
    }
    return views;
}

}  // namespace wisp::sim
