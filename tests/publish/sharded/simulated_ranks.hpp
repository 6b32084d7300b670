// The ranks of a sharded trainer, one after the other in one process.
#pragma once

#include <algorithm>
#include <array>

#include "base/bytes.hpp"
#include "checkpoint/blocks.hpp"
#include "checkpoint_steps.hpp"
#include "wisp/sharded_publisher.hpp"

namespace wisp::testing {

using ShardManifests = std::vector<std::vector<std::byte>>;

/// Block b of the grid belongs to rank b mod count: as scattered as can be.
class SimulatedRanks {
  public:
    SimulatedRanks(const Location& run, const Schema& schema, std::size_t count, unsigned log2,
                   std::uint64_t inline_bytes = 0, bool copies_dense_steps = true)
        : schema_(schema), log2_(log2) {
        const BlockGrid grid(schema_, log2);
        spans_.resize(count);
        for (std::uint64_t b = 0; b < grid.count(); ++b) {
            const BlockRange range = grid[b];
            spans_[b % count].push_back({range.tensor, range.first_element >> log2, 1});
        }
        for (std::size_t rank = 0; rank < count; ++rank) {
            ShardOptions options;
            options.inline_bytes = inline_bytes;
            options.part_bytes = 512;
            options.threads = 1 + rank % 2;
            // All of a step is listed, some of it, none of it; the rest copied, or coded at once.
            options.change_buffer_bytes = std::array<std::uint64_t, 3>{1 << 20, 300, 0}[rank % 3];
            options.copy_bytes = copies_dense_steps ? 1 << 20 : 0;
            writers_.push_back(
                value_of(ShardWriter::open(run, schema_, rank, spans_[rank], options, log2)));
        }
    }

    std::size_t count() const { return writers_.size(); }
    const Schema& schema() const { return schema_; }
    ShardWriter& writer(std::size_t rank) { return writers_[rank]; }

    void adopt(const Weights& weights) {
        const StateDigest state = value_of(digest_of(weights));
        for (ShardWriter& writer : writers_) value_of(writer.adopt(weights, state));
    }

    ShardManifests manifests(const ShardCall& call, const Weights& weights) {
        ShardManifests manifests;
        for (std::size_t rank = 0; rank < count(); ++rank) {
            if (call.part != ShardPart::kAnchor) {
                // The trainer goes on as soon as its weights were looked at.
                std::vector<Bytes> training;
                for (const auto view : views(rank, weights)) {
                    training.emplace_back(view.begin(), view.end());
                }
                value_of(writers_[rank].find(call, {training.begin(), training.end()}));
                for (Bytes& span : training) std::ranges::fill(span, std::byte{0xA5});
            }
            manifests.push_back(value_of(writers_[rank].deliver(call)));
        }
        return manifests;
    }

    /// What the ranks say of the last step.
    std::uint64_t changed_elements() const {
        std::uint64_t changed = 0;
        for (const ShardWriter& writer : writers_) changed += writer.delivered().changed_elements;
        return changed;
    }

    void advance(const StateDigest& state) {
        for (ShardWriter& writer : writers_) value_of(writer.advance(state));
    }

    /// As a trainer does: call, shard manifests, commit, advance, and an anchor if one is due.
    PublishReport publish(ShardedPublisher& publisher, const Weights& weights, std::uint64_t step) {
        const ShardCall call = value_of(publisher.call(schema_, step));
        PublishReport report = value_of(publisher.commit(call, schema_, manifests(call, weights)));
        advance(report.state);
        if (const auto due = publisher.anchor_call()) {
            const auto anchor =
                value_of(publisher.commit_anchor(*due, schema_, manifests(*due, weights)));
            report.anchored = anchor.anchored;
        }
        return report;
    }

    std::vector<std::span<const std::byte>> views(std::size_t rank, const Weights& weights) const {
        std::vector<std::span<const std::byte>> views;
        for (const BlockSpan& span : spans_[rank]) {
            const auto tensor = static_cast<std::size_t>(span.tensor);
            const TensorInfo& info = schema_.tensors()[tensor];
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

  private:
    Schema schema_;
    unsigned log2_;
    std::vector<std::vector<BlockSpan>> spans_;
    std::vector<ShardWriter> writers_;
};

}  // namespace wisp::testing
