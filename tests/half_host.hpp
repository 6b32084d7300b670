// A host that holds half of each tensor of SlicedSteps, a store that answers it wrongly, and a run
// that both follow.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "asked_words.hpp"
#include "doubles/memory_store.hpp"
#include "doubles/metered_store.hpp"
#include "sliced_model.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"
#include "wisp/relay.hpp"

namespace wisp::testing {

/// Answers ranges of deltas wrongly, as often as it is told to.
class WrongRanges : public MemoryStore {
  public:
    using MemoryStore::MemoryStore;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        if (offset == 0 || !takes_one()) return MemoryStore::read(key, offset, into);
        if (kind == "short") return MemoryStore::read(key, offset, into.first(into.size() - 1));
        if (kind == "shifted") return MemoryStore::read(key, offset + 1, into);
        std::ranges::fill(into, std::byte{0x5A});  // another object
        return into.size();
    }
    std::string kind;
    std::atomic<int> left = 0;

  private:
    /// Several threads fetch at a time.
    bool takes_one() {
        int seen = left;
        while (seen > 0 && !left.compare_exchange_weak(seen, seen - 1)) {
        }
        return seen > 0;
    }
};

/// One of two hosts: it has nothing but the tiles in which its slices lie.
class HalfHost {
  public:
    HalfHost(const SlicedSteps& steps, std::uint64_t host)
        : held_(std::make_shared<HeldSlices>(steps.half(host))) {}

    RelayReplicaOptions options() {
        RelayReplicaOptions made;
        made.threads = 2;
        made.held = [this] { return held_; };
        if (joins_in_parts) made.held_of = [this](const Schema&) { return held_; };
        made.room = [this](std::span<const TouchedTensor> wanted) -> Result<std::span<std::byte>> {
            return words_.room(wanted);
        };
        made.ask = [this](const StateDigest&) -> Result<void> {
            words_.fill_from(tensors_);
            return {};
        };
        made.on_move = [this](const ReplicaMove& move) -> Result<void> {
            for (const MovedBlock& block : *move.blocks) write(block);
            expected_ += move.moved_by;
            return {};
        };
        made.on_adopt = [this](const fs::path& folder, const Schema& schema,
                               const ReplicaRecord&) -> Result<void> {
            adopt(value_of(Checkpoint::open(folder)), schema);
            return {};
        };
        return made;
    }
    /// Whether all that it needs is as in this state, and adds up to the digest it was told.
    bool holds(const std::vector<Tensor>& state) const {
        StateDigest sum;
        for (std::size_t t = 0; t < tensors_.size(); ++t) {
            const unsigned width = traits_of(schema_.tensors()[t].dtype).element_bytes;
            for (const auto& [first, past] : needed_[t]) {
                const auto at = static_cast<std::size_t>(first * width);
                const auto size = static_cast<std::size_t>((past - first) * width);
                if (std::memcmp(tensors_[t].data() + at, state[t].bytes.data() + at, size) != 0) {
                    return false;
                }
                sum += digest_of_words(schema_.tensors()[t], at / 8,
                                       std::span(tensors_[t]).subspan(at, size));
            }
        }
        return sum == expected_;
    }
    bool has_state() const { return !tensors_.empty(); }
    /// How many bytes of the state lie in tiles that it needs.
    std::uint64_t needed_bytes() const {
        std::uint64_t sum = 0;
        for (std::size_t t = 0; t < needed_.size(); ++t) {
            const unsigned width = traits_of(schema_.tensors()[t].dtype).element_bytes;
            for (const auto& [first, past] : needed_[t]) sum += (past - first) * width;
        }
        return sum;
    }
    void damage() {
        for (std::byte& byte : tensors_[1]) byte ^= std::byte{2};
    }

    bool joins_in_parts = false;

  private:
    void adopt(const Checkpoint& whole, const Schema& schema) {
        schema_ = schema;
        tensors_.clear();
        needed_.clear();
        expected_ = {};
        for (std::size_t t = 0; t < schema.tensors().size(); ++t) {
            const TensorInfo& info = schema.tensors()[t];
            const TileRuns runs = value_of(runs_of_tiles(info, 4, held_->at(info.name)));
            const unsigned width = traits_of(info.dtype).element_bytes;
            Bytes own(whole.bytes(t).size(), std::byte{0xEE});
            for (const auto& [first, past] : runs.needed) {
                const auto at = static_cast<std::size_t>(first * width);
                const auto size = static_cast<std::size_t>((past - first) * width);
                std::memcpy(own.data() + at, whole.bytes(t).data() + at, size);
                expected_ += digest_of_words(info, at / 8, std::span(own).subspan(at, size));
            }
            tensors_.push_back(std::move(own));
            needed_.push_back(runs.needed);
        }
    }
    void write(const MovedBlock& block) {
        const std::size_t width = block.changes.element_bytes;
        for (std::size_t i = 0; i < block.changes.count(); ++i) {
            const std::size_t element = block.first_element + block.changes.positions[i];
            std::memcpy(tensors_[block.tensor].data() + element * width,
                        block.changes.new_bits.data() + i * width, width);
        }
    }
    std::shared_ptr<HeldSlices> held_;
    Schema schema_;
    std::vector<Bytes> tensors_;
    std::vector<ElementRuns> needed_;
    StateDigest expected_;
    AskedWords words_;
};

class SliceFollowing : public ::testing::Test {
  protected:
    SliceFollowing() {
        InitOptions options;
        options.slices = 4;
        value_of(init_run(run_, options));
    }
    void publish(std::size_t first, std::size_t end) {
        if (!publisher_) {
            baseline_ = value_of(open_memory_replica());
            publisher_.emplace(value_of(Publisher::open(run_, *baseline_, {})));
        }
        for (std::size_t i = first; i < end; ++i) {
            value_of(publisher_->publish(value_of(Checkpoint::open(steps_.state(i))), i));
        }
    }
    std::shared_ptr<WrongRanges> store_ = std::make_shared<WrongRanges>(system_clock());
    std::shared_ptr<MeteredStore> meter_ = std::make_shared<MeteredStore>(store_);
    Location run_{meter_, "runs/a", "memory:a"};
    SlicedSteps steps_{5};
    std::unique_ptr<Replica> baseline_;
    std::optional<Publisher> publisher_;
};

}  // namespace wisp::testing
