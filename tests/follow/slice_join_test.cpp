// A host that holds slices joins from its parts of an anchor; everybody else from all of it.
#include <gtest/gtest.h>

#include <functional>

#include "half_host.hpp"
#include "wisp/maintenance.hpp"

namespace wisp::testing {
namespace {

class SliceJoining : public SliceFollowing {
  protected:
    std::uint64_t read_bytes_of(const std::function<void()>& act) const {
        const std::uint64_t before = meter_->counts().bytes_in();
        act();
        return meter_->counts().bytes_in() - before;
    }
    std::uint64_t whole_join() {
        auto replica = value_of(open_memory_replica());
        Follower follower = value_of(Follower::open(run_, *replica, {}));
        return read_bytes_of([&] { value_of(follower.catch_up()); });
    }
    std::uint64_t state_bytes() const {
        return value_of(Checkpoint::open(steps_.state(0))).schema().total_bytes();
    }
};

TEST_F(SliceJoining, AHostFetchesItsPartsOfTheAnchor) {
    publish(0, 1);
    const auto whole = static_cast<double>(whole_join());
    for (const std::uint64_t host : {0ULL, 1ULL}) {
        HalfHost engines(steps_, host);
        engines.joins_in_parts = true;
        auto replica = value_of(open_relay_replica(engines.options()));
        Follower follower = value_of(Follower::open(run_, *replica, {}));
        const auto fetched =
            static_cast<double>(read_bytes_of([&] { value_of(follower.catch_up()); }));
        EXPECT_TRUE(engines.holds(steps_.tensors(host)));
        const double share =
            static_cast<double>(engines.needed_bytes()) / static_cast<double>(state_bytes());
        EXPECT_LT(share, 0.65);
        EXPECT_LT(fetched / whole, 1.06 * share) << "head, headers and commits included";
        publish(1 + host, 2 + host);
        value_of(follower.catch_up());
        EXPECT_TRUE(engines.holds(steps_.tensors(1 + host))) << "and goes on from there";
    }
}

TEST_F(SliceJoining, DeltasFromTheAnchorOnComeInPartsToo) {
    publish(0, 4);
    const auto whole = static_cast<double>(whole_join());
    HalfHost engines(steps_, 0);
    engines.joins_in_parts = true;
    auto replica = value_of(open_relay_replica(engines.options()));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    const auto fetched = static_cast<double>(read_bytes_of([&] { value_of(follower.catch_up()); }));
    EXPECT_TRUE(engines.holds(steps_.tensors(3)));
    EXPECT_LT(fetched / whole, 0.65);
    publish(4, 5);
    value_of(follower.catch_up());
    EXPECT_TRUE(engines.holds(steps_.tensors(4)));
}

TEST_F(SliceJoining, FromABaseAtHandOnlyTheDeltasComeAndInParts) {
    publish(0, 3);
    HalfHost engines(steps_, 1);
    engines.joins_in_parts = true;
    auto replica = value_of(open_relay_replica(engines.options()));
    FollowOptions options;
    options.base = steps_.state(0);
    Follower follower = value_of(Follower::open(run_, *replica, options));
    const std::uint64_t fetched = read_bytes_of([&] { value_of(follower.catch_up()); });
    EXPECT_TRUE(engines.holds(steps_.tensors(2)));
    EXPECT_LT(fetched, state_bytes() / 50);
}

TEST_F(SliceJoining, AHostThatCannotSayWhatItNeedsJoinsWhole) {
    publish(0, 2);
    HalfHost engines(steps_, 1);
    RelayReplicaOptions made = engines.options();
    made.held_of = [](const Schema&) { return nullptr; };
    auto replica = value_of(open_relay_replica(std::move(made)));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    EXPECT_GT(read_bytes_of([&] { value_of(follower.catch_up()); }), state_bytes() / 2);
    EXPECT_TRUE(engines.holds(steps_.tensors(1)));
}

TEST_F(SliceJoining, RangesThatAreNotWhatTheySayAreNoticed) {
    publish(0, 1);
    for (const char* kind : {"short", "shifted", "other"}) {
        HalfHost engines(steps_, 1);
        engines.joins_in_parts = true;
        auto replica = value_of(open_relay_replica(engines.options()));
        Follower follower = value_of(Follower::open(run_, *replica, {}));
        store_->kind = kind;
        store_->left = 2;  // fewer than anybody gives up after
        value_of(follower.catch_up());
        EXPECT_EQ(store_->left, 0) << kind;
        EXPECT_TRUE(engines.holds(steps_.tensors(0))) << kind << ": fetched again, and right";
    }
}

TEST_F(SliceJoining, WhatStaysWrongIsNotTaken) {
    publish(0, 1);
    HalfHost engines(steps_, 0);
    engines.joins_in_parts = true;
    auto replica = value_of(open_relay_replica(engines.options()));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    store_->kind = "other";
    store_->left = 1'000'000;
    EXPECT_FALSE(follower.catch_up());
    EXPECT_FALSE(engines.has_state());
    store_->left = 0;
    publish(1, 2);  // a newer head: everything may be well again
    value_of(follower.catch_up());
    EXPECT_TRUE(engines.holds(steps_.tensors(1)));
}

TEST_F(SliceJoining, AFolderGetsTheFilesThatWerePublished) {
    TempFolder given;
    const auto& state = steps_.tensors(0);
    write_bytes(given / "model-00001-of-00002.safetensors",
                safetensors_file({state[0], state[1], state[2]}, {{"format", "pt"}}));
    write_bytes(given / "model-00002-of-00002.safetensors",
                safetensors_file({state[3], state[4]}, {{"format", "pt"}}));
    const std::string config = R"({"model_type":"none"})";
    write_bytes(given / "config.json", as_bytes(config));
    std::string map;
    for (std::size_t i = 0; i < state.size(); ++i) {
        map += (i > 0 ? ",\"" : "\"") + state[i].info.name + "\":\"model-0000" +
               (i < 3 ? "1" : "2") + "-of-00002.safetensors\"";
    }
    const std::string index = R"({"metadata":{},"weight_map":{)" + map + "}}";
    write_bytes(given / "model.safetensors.index.json", as_bytes(index));
    baseline_ = value_of(open_memory_replica());
    Publisher publisher = value_of(Publisher::open(run_, *baseline_, {}));
    value_of(publisher.publish(value_of(Checkpoint::open(given.path())), 0));
    TempFolder taken;
    auto replica = value_of(open_folder_replica(taken / "replica"));
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    value_of(follower.catch_up());
    for (const auto& file : fs::directory_iterator(given.path())) {
        const fs::path name = file.path().filename();
        EXPECT_EQ(read_bytes(taken / "replica" / name), read_bytes(file.path())) << name;
    }
}

TEST_F(SliceJoining, MaintenanceReadsSlicedAnchors) {
    publish(0, 4);
    const ScrubReport scrubbed = value_of(scrub_run(run_, {}, true));
    EXPECT_TRUE(scrubbed.findings.empty()) << scrubbed.findings.front().problem;
    EXPECT_GE(scrubbed.states_proven, 4U);
    value_of(compact_run(run_, {}));
    TempFolder taken;
    value_of(export_step(run_, 2, taken / "exported", {}));
    EXPECT_TRUE(steps_.holds(taken / "exported", 2));
    const Location branch{meter_, "runs/b", "memory:b"};
    InitOptions options;
    options.branch_of = run_;
    options.branch_step = 3;
    value_of(init_run(branch, options));
    HalfHost engines(steps_, 1);
    engines.joins_in_parts = true;
    auto replica = value_of(open_relay_replica(engines.options()));
    Follower follower = value_of(Follower::open(branch, *replica, {}));
    const std::uint64_t fetched = read_bytes_of([&] { value_of(follower.catch_up()); });
    EXPECT_TRUE(engines.holds(steps_.tensors(3))) << "by the branch, and a merged delta";
    EXPECT_LT(static_cast<double>(fetched), 0.65 * static_cast<double>(state_bytes()));
}

TEST_F(SliceJoining, AnAnchorOverAPublicBaseComesInPartsToo) {
    PublishOptions publish_options;
    publish_options.public_base = steps_.state(0);
    publish_options.public_base_name = "org/base";
    baseline_ = value_of(open_memory_replica());
    Publisher publisher = value_of(Publisher::open(run_, *baseline_, publish_options));
    for (const std::size_t i : {1U, 2U}) {
        value_of(publisher.publish(value_of(Checkpoint::open(steps_.state(i))), i));
    }
    for (const bool in_parts : {true, false}) {
        HalfHost engines(steps_, 0);
        engines.joins_in_parts = in_parts;
        auto replica = value_of(open_relay_replica(engines.options()));
        FollowOptions options;
        options.base = steps_.state(0);
        Follower follower = value_of(Follower::open(run_, *replica, options));
        value_of(follower.catch_up());
        EXPECT_TRUE(engines.holds(steps_.tensors(2)));
    }
}

}  // namespace
}  // namespace wisp::testing
