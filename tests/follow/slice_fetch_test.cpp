// A host that holds slices: fetched, proven and moved on is its share, and no more.
#include <gtest/gtest.h>

#include "follow/slice_fetcher.hpp"
#include "half_host.hpp"

namespace wisp::testing {
namespace {

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
