// A host that holds slices: fetched, proven and moved on is its share, and no more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "doubles/memory_store.hpp"
#include "doubles/metered_store.hpp"
#include "follow/slice_fetcher.hpp"
#include "sliced_model.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"
#include "wisp/relay.hpp"

namespace wisp::testing {
namespace {

/// Answers ranges of deltas wrongly, as often as it is told to.
class WrongRanges : public MemoryStore {
  public:
    using MemoryStore::MemoryStore;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        if (offset == 0 || left == 0) return MemoryStore::read(key, offset, into);
        --left;
        if (kind == "short") return MemoryStore::read(key, offset, into.first(into.size() - 1));
        if (kind == "shifted") return MemoryStore::read(key, offset + 1, into);
        std::ranges::fill(into, std::byte{0x5A});  // another object
        return into.size();
    }
    std::string kind;
    int left = 0;
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
        made.room = [this](std::span<const TouchedTensor> wanted) -> Result<std::span<std::byte>> {
            touched_.assign(wanted.begin(), wanted.end());
            std::size_t size = 0;
            for (const TouchedTensor& tensor : wanted) size += room_bytes_of(tensor.words);
            room_.assign(size, std::byte{});
            return std::span(room_);
        };
        made.ask = [this](const StateDigest&) -> Result<void> {
            fill();
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
    void damage() {
        for (std::byte& byte : tensors_[1]) byte ^= std::byte{2};
    }

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
    void fill() {
        std::byte* at = room_.data();
        for (const TouchedTensor& touched : touched_) {
            const Bytes& bytes = tensors_[touched.tensor];
            for (std::size_t i = 0; i < touched.words; ++i) {
                const std::size_t first = std::size_t{load_le<std::uint32_t>(at + i * 4)} * 8;
                std::memcpy(at + index_bytes_of(touched.words) + i * 8, bytes.data() + first,
                            std::min<std::size_t>(8, bytes.size() - first));
            }
            at += room_bytes_of(touched.words);
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
    std::vector<TouchedTensor> touched_;
    Bytes room_;
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

TEST_F(SliceFollowing, EachHostFetchesItsHalf) {
    publish(0, 1);
    for (const std::uint64_t host : {0ULL, 1ULL}) {
        HalfHost engines(steps_, host);
        auto replica = value_of(open_relay_replica(engines.options()));
        Follower follower = value_of(Follower::open(run_, *replica, {}));
        value_of(follower.catch_up());
        EXPECT_TRUE(engines.holds(steps_.tensors(host))) << "joined whole";
        publish(1 + host, 2 + host);
        const std::uint64_t before = meter_->counts().bytes_in();
        value_of(follower.catch_up());
        EXPECT_TRUE(engines.holds(steps_.tensors(1 + host)));
        const double share = static_cast<double>(meter_->counts().bytes_in() - before) /
                             static_cast<double>(fs::file_size(steps_.delta(host, 1 + host, 0)));
        EXPECT_LT(share, 0.75) << "with the commit, of a delta of 16 KB";
    }
}

TEST_F(SliceFollowing, SeveralStepsAtOnceAreOneMove) {
    publish(0, 1);
    HalfHost engines(steps_, 1);
    auto replica = value_of(open_relay_replica(engines.options()));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    value_of(follower.catch_up());
    publish(1, 5);
    value_of(follower.catch_up());
    EXPECT_TRUE(engines.holds(steps_.tensors(4)));
}

TEST_F(SliceFollowing, RangesThatAreNotWhatTheySayAreNoticed) {
    publish(0, 1);
    HalfHost engines(steps_, 1);
    auto replica = value_of(open_relay_replica(engines.options()));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    value_of(follower.catch_up());
    std::size_t step = 1;
    for (const char* kind : {"short", "shifted", "other"}) {
        publish(step, step + 1);
        store_->kind = kind;
        store_->left = 2;  // fewer than anybody gives up after
        value_of(follower.catch_up());
        EXPECT_EQ(store_->left, 0) << kind;
        EXPECT_TRUE(engines.holds(steps_.tensors(step))) << kind << ": fetched again, and right";
        ++step;
    }
}

TEST_F(SliceFollowing, OldBitsOfSomebodyElseAreRefusedAndTheSliceJoinsAnew) {
    publish(0, 1);
    HalfHost engines(steps_, 0);
    auto replica = value_of(open_relay_replica(engines.options()));
    FollowOptions options;
    std::string fault;
    options.on_event = [&](const FollowEvent& event) -> Result<void> {
        if (event.kind == FollowEvent::Kind::kFault) fault = event.fault;
        return {};
    };
    Follower follower = value_of(Follower::open(run_, *replica, options));
    value_of(follower.catch_up());
    engines.damage();
    publish(1, 2);
    value_of(follower.catch_up());
    EXPECT_NE(fault.find("a.o_proj.weight"), std::string::npos) << fault;
    EXPECT_TRUE(engines.holds(steps_.tensors(1)));
}

TEST_F(SliceFollowing, ADeltaThatIsNotSlicedIsNotForSlices) {
    const Location other{store_, "runs/b", "memory:b"};
    value_of(init_run(other, {}));
    auto baseline = value_of(open_memory_replica());
    Publisher publisher = value_of(Publisher::open(other, *baseline, {}));
    value_of(publisher.publish(value_of(Checkpoint::open(steps_.state(0))), 0));
    HalfHost engines(steps_, 0);
    auto replica = value_of(open_relay_replica(engines.options()));
    Follower follower = value_of(Follower::open(other, *replica, {}));
    value_of(follower.catch_up());
    value_of(publisher.publish(value_of(Checkpoint::open(steps_.state(1))), 1));
    EXPECT_EQ(outcome_of(follower.catch_up()), "unsupported");
}

TEST(MergedRanges, TakeTheSmallestGapsAndWasteLittle) {
    using Ranges = std::vector<ByteRange>;
    EXPECT_EQ(merge_ranges({}), Ranges());
    EXPECT_EQ(merge_ranges({{0, 10}, {10, 20}}), (Ranges{{0, 20}})) << "neighbours";
    EXPECT_EQ(merge_ranges({{0, 10}, {11, 20}}), (Ranges{{0, 10}, {11, 20}})) << "too few bytes";
    EXPECT_EQ(merge_ranges({{0, 1000}, {1020, 2000}, {2010, 3000}, {5000, 5100}}),
              (Ranges{{0, 3000}, {5000, 5100}}));
}

}  // namespace
}  // namespace wisp::testing
