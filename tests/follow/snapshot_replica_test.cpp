// A folder for each step: each whole, none ever written to again, `current` at the newest.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "wisp/followed_folders.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"

namespace wisp::testing {
namespace {

class Snapshots : public ::testing::Test {
  protected:
    Snapshots() {
        value_of(init_run(run_, {}));
        publisher_.emplace(value_of(Publisher::open(run_, *baseline_, publishing_)));
        options_.keep = 3;
        options_.marker = "STABLE";
        options_.reader_timeout = Milliseconds(50);
        options_.on_kept = [this](const std::string& what) { kept_.push_back(what); };
    }

    void publish(std::size_t state, std::uint64_t step) {
        value_of(publisher_->publish(value_of(Checkpoint::open(steps_.state(state))), step));
    }
    Result<std::unique_ptr<Replica>> open() {
        return open_snapshot_replica(
            value_of(StepPattern::parse((root() / "step_{step}").string())), options_);
    }
    /// To the newest step, by a process of its own.
    FollowReport follow() {
        auto replica = value_of(open());
        return value_of(value_of(Follower::open(run_, *replica, {})).catch_up());
    }
    fs::path root() const { return folder_ / "models"; }
    fs::path step(std::uint64_t n) const { return root() / ("step_" + std::to_string(n)); }
    std::set<std::string> names() const {
        std::set<std::string> found;
        for (const auto& item : fs::directory_iterator(root())) {
            found.insert(item.path().filename().string());
        }
        return found;
    }
    std::string current() const { return fs::read_symlink(root() / "current").string(); }

    CheckpointSteps steps_{8};
    TempFolder folder_;
    Location run_{std::make_shared<MemoryStore>(system_clock()), "runs/a", "memory:a"};
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
    PublishOptions publishing_;
    std::optional<Publisher> publisher_;
    SnapshotReplicaOptions options_;
    std::vector<std::string> kept_;
};

TEST_F(Snapshots, EachStepIsAFolderOfItsOwn) {
    auto replica = value_of(open());
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    for (std::size_t i = 0; i < 6; ++i) {
        publish(i, i);
        EXPECT_TRUE(value_of(follower.catch_up()).moved);
        EXPECT_TRUE(steps_.holds(step(i), i));
        EXPECT_TRUE(fs::exists(step(i) / "STABLE"));
        EXPECT_EQ(current(), "step_" + std::to_string(i));
    }
    EXPECT_EQ(names(), (std::set<std::string>{".wisp", "current", "step_3", "step_4", "step_5"}));
    for (std::size_t i = 3; i < 6; ++i) EXPECT_TRUE(steps_.holds(step(i), i));
    EXPECT_TRUE(kept_.empty());
}

TEST_F(Snapshots, ARestartGoesOnFromTheNewest) {
    for (std::size_t i = 0; i < 5; ++i) {
        publish(i, 10 * i);
        const FollowReport report = follow();
        EXPECT_EQ(report.at.step, 10 * i);
        EXPECT_TRUE(steps_.holds(step(10 * i), i));
    }
    EXPECT_FALSE(follow().moved);
}

TEST_F(Snapshots, TheSameWeightsUnderAnotherNumberAreAFolderToo) {
    publish(0, 0);
    follow();
    publish(0, 7);
    EXPECT_EQ(follow().at.step, 7U);
    EXPECT_TRUE(steps_.holds(step(7), 0));
    EXPECT_EQ(current(), "step_7");
}

TEST_F(Snapshots, WhatADeltaDoesNotTouchIsSharedAndNeverWrittenTo) {
    // Two shards, and a step that changes a tensor of one of them.
    const fs::path first = steps_.sharded(0);
    value_of(publisher_->publish(value_of(Checkpoint::open(first)), 0));
    follow();
    const fs::path second = folder_ / "second";
    fs::copy(first, second, fs::copy_options::recursive);
    Bytes bytes = read_bytes(second / "m-1.safetensors");
    bytes.back() ^= std::byte{1};
    write_bytes(second / "m-1.safetensors", bytes);
    value_of(publisher_->publish(value_of(Checkpoint::open(second)), 1));
    const Bytes before = read_bytes(step(0) / "m-1.safetensors");
    follow();
    EXPECT_EQ(read_bytes(step(1) / "m-1.safetensors"), bytes);
    EXPECT_EQ(read_bytes(step(0) / "m-1.safetensors"), before);
    struct stat shared = {};
    struct stat written = {};
    ASSERT_EQ(::stat((step(1) / "m-2.safetensors").c_str(), &shared), 0);
    ASSERT_EQ(::stat((step(1) / "m-1.safetensors").c_str(), &written), 0);
    EXPECT_EQ(written.st_nlink, 1U);
    if (shared.st_nlink > 1) {
        // Hard links here: a writer in place is told not to.
        const auto refused = apply_in_place(step(1) / "m-2.safetensors", {steps_.delta(0, 1)}, {});
        EXPECT_FALSE(refused);
    }
}

TEST_F(Snapshots, HardLinkedFilesAreNotWrittenToInPlace) {
    fs::create_hard_link(steps_.state(0), folder_ / "other_name");
    const auto refused = apply_in_place(steps_.state(0), {steps_.delta(0, 1)}, {});
    EXPECT_EQ(outcome_of(refused), "invalid");
    EXPECT_NE(text_of(refused).find("hard links"), std::string::npos);
    EXPECT_TRUE(steps_.holds(folder_ / "other_name", 0));
}

TEST_F(Snapshots, ReadersKeepTheirFolder) {
    publish(0, 0);
    follow();
    {
        const FolderReading reading = value_of(FolderReading::begin(root(), Milliseconds(1000)));
        EXPECT_EQ(reading.folder(), fs::canonical(step(0)));
        EXPECT_EQ(reading.at().step, 0U);
        for (std::size_t i = 1; i < 6; ++i) {
            publish(i, i);
            follow();
        }
        EXPECT_TRUE(steps_.holds(step(0), 0));
        EXPECT_FALSE(kept_.empty());
        EXPECT_FALSE(fs::exists(step(1)));
    }
    publish(6, 6);
    follow();
    EXPECT_FALSE(fs::exists(step(0)));
}

TEST_F(Snapshots, WhatOthersPutIntoAFolderIsNotRemoved) {
    publish(0, 0);
    follow();
    write_bytes(step(0) / "notes.txt", as_bytes("mine"));
    for (std::size_t i = 1; i < 6; ++i) {
        publish(i, i);
        follow();
    }
    EXPECT_TRUE(steps_.holds(step(0), 0));
    EXPECT_EQ(read_bytes(step(0) / "notes.txt").size(), 4U);
    ASSERT_FALSE(kept_.empty());
    EXPECT_NE(kept_.front().find("notes.txt"), std::string::npos);
    EXPECT_FALSE(fs::exists(step(1)));
}

TEST_F(Snapshots, RefusesFoldersThatItDidNotMake) {
    fs::create_directories(step(3));
    EXPECT_EQ(outcome_of(open()), "invalid");
    fs::remove_all(root());
    fs::create_directories(root());
    fs::create_symlink("elsewhere", root() / "current");
    EXPECT_EQ(outcome_of(open()), "invalid");
    fs::remove_all(root());
    value_of(open_folder_replica(root()));
    EXPECT_EQ(outcome_of(open()), "ok") << "an empty replica's folder holds nothing yet";
}

TEST_F(Snapshots, RefusesAStepWhoseFolderSomebodyElseMade) {
    publish(0, 0);
    follow();
    write_bytes(folder_ / "keep", as_bytes("x"));
    fs::create_directories(step(1));
    write_bytes(step(1) / "thing", as_bytes("theirs"));
    publish(1, 1);
    auto replica = value_of(open());
    Follower follower = value_of(Follower::open(run_, *replica, {}));
    EXPECT_EQ(outcome_of(follower.catch_up()), "invalid");
    EXPECT_EQ(read_bytes(step(1) / "thing").size(), 6U);
    EXPECT_EQ(current(), "step_0");
    fs::remove_all(step(1));
    EXPECT_TRUE(value_of(follower.catch_up()).moved);
    EXPECT_TRUE(steps_.holds(step(1), 1));
}

TEST_F(Snapshots, OneFollowerAtATime) {
    auto first = value_of(open());
    EXPECT_EQ(outcome_of(open()), "conflict");
}

TEST_F(Snapshots, RefusesWhatCannotWork) {
    options_.keep = 1;
    EXPECT_EQ(outcome_of(open()), "invalid");
    options_.keep = 2;
    for (const char* const bad : {"a/b", "..", ".hidden", "model.safetensors", "config.json"}) {
        options_.marker = bad;
        EXPECT_EQ(outcome_of(open()), "invalid") << bad;
    }
    options_.marker = "";
    EXPECT_EQ(outcome_of(open_snapshot_replica(
                  value_of(StepPattern::parse((root() / "{step}" / "hf").string())), options_)),
              "invalid");
    EXPECT_FALSE(fs::exists(root()));
}

TEST_F(Snapshots, ARunThatWasSetBackReplacesTheFolderOfItsStep) {
    for (std::size_t i = 0; i < 3; ++i) publish(i, i);
    follow();
    EXPECT_TRUE(steps_.holds(step(2), 2));
    publish(5, 2);
    {
        const FolderReading reading = value_of(FolderReading::begin(step(2), Milliseconds(1000)));
        auto replica = value_of(open());
        Follower follower = value_of(Follower::open(run_, *replica, {}));
        EXPECT_EQ(outcome_of(follower.catch_up()), "unavailable") << "a reader holds the folder";
        EXPECT_TRUE(steps_.holds(step(2), 2));
    }
    follow();
    EXPECT_TRUE(steps_.holds(step(2), 5));
    EXPECT_TRUE(fs::exists(step(2) / "STABLE"));
    EXPECT_EQ(names(), (std::set<std::string>{".wisp", "current", "step_2"}));
}

TEST_F(Snapshots, ADamagedFolderFallsBackToTheNewestWholeOne) {
    for (std::size_t i = 0; i < 3; ++i) {
        publish(i, i);
        follow();
    }
    Bytes bytes = read_bytes(step(2) / "model.safetensors");
    bytes.back() ^= std::byte{1};
    write_bytes(step(2) / "model.safetensors", bytes);
    {
        auto replica = value_of(open());
        const auto record = value_of(replica->load());
        EXPECT_EQ(record->step, 1U);
        EXPECT_EQ(current(), "step_1");
    }
    follow();
    EXPECT_TRUE(steps_.holds(step(2), 2));
    EXPECT_EQ(current(), "step_2");
}

/// What a crash leaves at each point of a move is finished or cleaned away.
TEST_F(Snapshots, LeftoversOfACrashAreCleaned) {
    for (std::size_t i = 0; i < 2; ++i) {
        publish(i, i);
        follow();
    }
    const fs::path scratch = root() / ".wisp" / "scratch";
    fs::create_directories(scratch / "building");
    write_bytes(scratch / "building" / "model.safetensors", as_bytes("half"));
    fs::create_directories(scratch / "removing");
    fs::create_symlink("step_9", scratch / "current");
    // In place, but neither marked nor named by `current` yet.
    fs::remove(step(1) / "STABLE");
    fs::remove(root() / "current");
    fs::create_symlink("step_0", root() / "current");
    EXPECT_FALSE(follow().moved);
    EXPECT_TRUE(fs::exists(step(1) / "STABLE"));
    EXPECT_EQ(current(), "step_1");
    for (const char* const left : {"building", "removing", "current", "incoming"}) {
        EXPECT_FALSE(fs::exists(fs::symlink_status(scratch / left))) << left;
    }
}

}  // namespace
}  // namespace wisp::testing
