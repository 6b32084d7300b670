// A replica without weights: their holder is asked for the touched words, and these prove it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "asked_words.hpp"
#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"
#include "wisp/relay.hpp"

namespace wisp::testing {
namespace {

/// Engines with all of the weights: they answer, and write what they are told.
class HeldElsewhere {
  public:
    RelayReplicaOptions options() {
        RelayReplicaOptions made;
        made.room = [this](std::span<const TouchedTensor> wanted) -> Result<std::span<std::byte>> {
            return words_.room(wanted);
        };
        made.ask = [this](const StateDigest& at) -> Result<void> {
            ++asked;
            is_right = is_right && at == digest();
            words_.fill_from(tensors);
            return {};
        };
        made.asked = [] { return std::string("rank 7"); };
        made.on_move = [this](const ReplicaMove& move) -> Result<void> {
            for (const MovedBlock& block : *move.blocks) write(block);
            return {};
        };
        made.on_adopt = [this](const std::filesystem::path& folder, const Schema& schema,
                               const ReplicaRecord&) -> Result<void> {
            const Checkpoint whole = value_of(Checkpoint::open(folder));
            schema_ = schema;
            tensors.clear();
            for (std::size_t i = 0; i < schema.tensors().size(); ++i) {
                tensors.emplace_back(whole.bytes(i).begin(), whole.bytes(i).end());
            }
            return {};
        };
        return made;
    }
    StateDigest digest() const {
        StateDigest sum;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            sum += digest_of_words(schema_.tensors()[i], 0, tensors[i]);
        }
        return sum;
    }

    std::vector<Bytes> tensors;
    int asked = 0;
    bool is_right = true;  // each time they were asked, they held what they were asked for

  private:
    void write(const MovedBlock& block) {
        const std::size_t width = block.changes.element_bytes;
        for (std::size_t i = 0; i < block.changes.count(); ++i) {
            const std::size_t element = block.first_element + block.changes.positions[i];
            std::byte* place = tensors[block.tensor].data() + element * width;
            EXPECT_EQ(std::memcmp(place, block.changes.old_bits.data() + i * width, width), 0);
            std::memcpy(place, block.changes.new_bits.data() + i * width, width);
        }
    }
    Schema schema_;
    AskedWords words_;
};

class RelayReplicaTest : public ::testing::Test {
  protected:
    RelayReplicaTest() {
        InitOptions options;
        options.codec = Codec::kSwift;
        value_of(init_run(run_, options));
    }
    void publish(std::size_t first, std::size_t end) {
        auto baseline = value_of(open_memory_replica());
        Publisher publisher = value_of(Publisher::open(run_, *baseline, {}));
        for (std::size_t i = first; i < end; ++i) {
            value_of(publisher.publish(value_of(Checkpoint::open(steps_.state(i))), i));
        }
    }
    std::string held() { return to_text(engines_.digest()); }
    std::string wanted(std::size_t i) { return to_text(steps_.digest(i)); }

    CheckpointSteps steps_{8};
    Location run_{std::make_shared<MemoryStore>(system_clock()), "runs/a", "memory:a"};
    HeldElsewhere engines_;
};

TEST_F(RelayReplicaTest, FollowsByAskingForWhatIsTouched) {
    publish(0, 1);
    auto replica = value_of(open_relay_replica(engines_.options()));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    value_of(follower.catch_up());
    EXPECT_EQ(held(), wanted(0));
    EXPECT_EQ(engines_.asked, 0);
    for (std::size_t i = 1; i < 4; ++i) {
        publish(i, i + 1);
        value_of(follower.catch_up());
        EXPECT_EQ(held(), wanted(i));
        EXPECT_EQ(engines_.asked, static_cast<int>(i));
    }
    EXPECT_TRUE(engines_.is_right);
    EXPECT_EQ(replica->weights(), nullptr);
    EXPECT_TRUE(replica->has_state());
}

TEST_F(RelayReplicaTest, SeveralDeltasAreAskedForOnce) {
    publish(0, 1);
    auto replica = value_of(open_relay_replica(engines_.options()));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    value_of(follower.catch_up());
    std::vector<std::filesystem::path> deltas;
    for (std::size_t i = 0; i < 5; ++i) deltas.push_back(steps_.delta(i, i + 1, Codec::kSwift));
    ReplicaRecord after = *value_of(replica->load());
    after.state = steps_.digest(5);
    const ApplyReport report = value_of(replica->apply(deltas, after));
    EXPECT_EQ(report.deltas_applied, 5U);
    EXPECT_EQ(engines_.asked, 1);
    EXPECT_EQ(held(), wanted(5));
    // Another place to start from, and another end, are refused.
    EXPECT_EQ(outcome_of(replica->apply(deltas, after)), "wrong_base");
    EXPECT_EQ(outcome_of(replica->apply({steps_.delta(5, 6, Codec::kSwift)}, after)), "corrupt");
    EXPECT_EQ(held(), wanted(5));
}

TEST_F(RelayReplicaTest, EachOfSeveralBatchesIsToldOfBeforeTheNext) {
    constexpr std::size_t kSteps = 40;  // more than are taken in at once
    CheckpointSteps steps(kSteps, 0.0002);
    auto baseline = value_of(open_memory_replica());
    PublishOptions publishing;
    publishing.anchor_every = kSteps + 1;
    Publisher publisher = value_of(Publisher::open(run_, *baseline, publishing));
    const auto publish = [&](std::size_t i) {
        value_of(publisher.publish(value_of(Checkpoint::open(steps.state(i))), i));
    };
    std::vector<std::uint64_t> told;
    int asked_before = 0;
    FollowOptions options;
    options.on_event = [&](const FollowEvent& event) -> Result<void> {
        EXPECT_EQ(to_text(event.state), to_text(engines_.digest()));
        EXPECT_LE(engines_.asked, ++asked_before);
        told.push_back(event.deltas_applied);
        return {};
    };
    publish(0);
    auto replica = value_of(open_relay_replica(engines_.options()));
    Follower follower = value_of(Follower::open(run_, *replica, options));
    value_of(follower.catch_up());
    for (std::size_t i = 1; i < kSteps; ++i) publish(i);
    told.clear();
    asked_before = 0;
    value_of(follower.catch_up());
    EXPECT_EQ(held(), to_text(steps.digest(kSteps - 1)));
    EXPECT_EQ(static_cast<int>(told.size()), engines_.asked);
    EXPECT_EQ(std::accumulate(told.begin(), told.end(), std::uint64_t{0}), kSteps - 1);
    EXPECT_GE(std::ranges::max(told), 32U);
}

TEST_F(RelayReplicaTest, MemoryOfOthersIsRefusedAndMended) {
    publish(0, 3);
    auto replica = value_of(open_relay_replica(engines_.options()));
    std::string fault;
    FollowOptions options;
    options.on_event = [&](const FollowEvent& event) -> Result<void> {
        if (event.kind == FollowEvent::Kind::kFault) fault = event.fault;
        return {};
    };
    Follower follower = value_of(Follower::open(run_, *replica, options));
    value_of(follower.catch_up());
    for (auto& tensor : engines_.tensors) {
        for (std::byte& byte : tensor) byte ^= std::byte{1};
    }
    publish(3, 4);
    value_of(follower.catch_up());
    EXPECT_FALSE(engines_.is_right);
    EXPECT_NE(fault.find("is refused before anything is written"), std::string::npos) << fault;
    EXPECT_NE(fault.find("rank 7"), std::string::npos) << fault;
    EXPECT_EQ(held(), wanted(3));
}

TEST_F(RelayReplicaTest, OtherCodecsNeedTheWeights) {
    publish(0, 1);
    auto replica = value_of(open_relay_replica(engines_.options()));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    value_of(follower.catch_up());
    ReplicaRecord after = *value_of(replica->load());
    after.state = steps_.digest(1);
    EXPECT_EQ(outcome_of(replica->apply({steps_.delta(0, 1, Codec::kCompact)}, after)),
              "unsupported");
    EXPECT_EQ(held(), wanted(0));
}

}  // namespace
}  // namespace wisp::testing
