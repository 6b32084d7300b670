// A folder that is kept in place stays at one step while somebody reads it.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "checkpoint_steps.hpp"
#include "doubles/memory_store.hpp"
#include "wisp/followed_folders.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"

namespace wisp::testing {
namespace {

constexpr Milliseconds kLong(60'000);
constexpr Milliseconds kShort(30);

class FolderReadings : public ::testing::Test {
  protected:
    FolderReadings() {
        value_of(init_run(run_, {}));
        publisher_.emplace(value_of(Publisher::open(run_, *baseline_, publishing_)));
        publish(0);
        options_.reader_timeout = kShort;
    }
    void publish(std::size_t step) {
        value_of(publisher_->publish(value_of(Checkpoint::open(steps_.state(step))), step));
    }
    void open() {
        replica_ = value_of(open_folder_replica(policy(), options_));
        follower_.emplace(value_of(Follower::open(run_, *replica_, {})));
    }
    fs::path policy() const { return folder_ / "policy"; }

    CheckpointSteps steps_{5};
    TempFolder folder_;
    Location run_{std::make_shared<MemoryStore>(system_clock()), "runs/a", "memory:a"};
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
    PublishOptions publishing_;
    std::optional<Publisher> publisher_;
    FolderReplicaOptions options_;
    std::unique_ptr<Replica> replica_;
    std::optional<Follower> follower_;
};

TEST_F(FolderReadings, AFollowerWaitsForReadersAndSaysSo) {
    open();
    value_of(follower_->catch_up());
    publish(1);
    {
        const auto first = value_of(FolderReading::begin(policy(), kLong));
        const auto second = value_of(FolderReading::begin(policy(), kLong));
        EXPECT_EQ(first.at().step, 0U);
        const auto waited = follower_->catch_up();
        EXPECT_EQ(outcome_of(waited), "unavailable");
        EXPECT_NE(text_of(waited).find("wisp read"), std::string::npos);
        EXPECT_FALSE(replica_->in_doubt()) << "nothing was changed";
        EXPECT_TRUE(steps_.holds(policy(), 0));
    }
    EXPECT_TRUE(value_of(follower_->catch_up()).moved);
    EXPECT_TRUE(steps_.holds(policy(), 1));
    EXPECT_EQ(value_of(FolderReading::begin(policy(), kLong)).at().step, 1U);
}

TEST_F(FolderReadings, AStuckReaderIsAFaultAndNoEnd) {
    open();
    value_of(follower_->catch_up());
    publish(1);
    auto reading = std::optional(value_of(FolderReading::begin(policy(), kLong)));
    int faults = 0;
    FollowOptions options;
    options.poll = Milliseconds(1);
    options.until_step = 1;
    options.on_event = [&](const FollowEvent& event) -> Result<void> {
        if (event.kind == FollowEvent::Kind::kFault && ++faults == 2) reading.reset();
        return {};
    };
    Follower follower = value_of(Follower::open(run_, *replica_, options));
    const FollowReport report = value_of(follower.follow());
    EXPECT_EQ(report.at.step, 1U);
    EXPECT_GE(faults, 2);
}

TEST_F(FolderReadings, RefusesWhatIsNotKeptByAFollower) {
    fs::create_directories(folder_ / "plain");
    EXPECT_EQ(outcome_of(FolderReading::begin(folder_ / "plain", kShort)), "invalid");
    EXPECT_EQ(outcome_of(FolderReading::begin(folder_ / "nothing", kShort)), "not_found");
    open();
    EXPECT_EQ(outcome_of(FolderReading::begin(policy(), kShort)), "invalid")
        << "there is no record before the first step";
}

TEST_F(FolderReadings, RefusesAFolderBetweenTwoSteps) {
    open();
    value_of(follower_->catch_up());
    write_bytes(policy() / ".wisp-journal", as_bytes("half"));
    EXPECT_EQ(outcome_of(FolderReading::begin(policy(), kShort)), "conflict");
    fs::remove(policy() / ".wisp-journal");
    EXPECT_EQ(outcome_of(FolderReading::begin(policy(), kShort)), "ok");
}

TEST_F(FolderReadings, ReadersAlwaysMeetOneStepAndDoNotStarveTheWriter) {
    options_.reader_timeout = kLong;
    open();
    value_of(follower_->catch_up());
    std::atomic<bool> over = false;
    std::atomic<int> mixtures = 0;
    std::vector<std::jthread> readers;
    for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&] {
            while (!over) {
                const auto reading = value_of(FolderReading::begin(policy(), kLong));
                const StateDigest found =
                    value_of(digest_of(value_of(Checkpoint::open(reading.folder())), 1));
                if (found != reading.at().state) ++mixtures;
            }
        });
    }
    for (std::size_t i = 1; i < 5; ++i) {
        publish(i);
        EXPECT_TRUE(value_of(follower_->catch_up()).moved);
    }
    over = true;
    readers.clear();
    EXPECT_EQ(mixtures, 0);
}

}  // namespace
}  // namespace wisp::testing
