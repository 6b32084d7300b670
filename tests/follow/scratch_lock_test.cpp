// Two users of one scratch folder would count as one writer: the second is refused.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "doubles/memory_store.hpp"
#include "expect_result.hpp"
#include "temp_checkpoints.hpp"
#include "wisp/replica.hpp"
#include "wisp/sharded_publisher.hpp"

namespace wisp::testing {
namespace {

class ScratchLock : public ::testing::Test {
  protected:
    Result<std::unique_ptr<Replica>> open() {
        MemoryReplicaOptions options;
        options.scratch = folder_ / "scratch";
        return open_memory_replica(options);
    }

    TempFolder folder_;
};

TEST_F(ScratchLock, OneReplicaAtATime) {
    auto first = value_of(open());
    const auto second = open();
    EXPECT_EQ(outcome_of(second), "conflict");
    EXPECT_NE(text_of(second).find("another process or publisher uses the scratch folder"),
              std::string::npos);
    first.reset();
    value_of(open());
}

TEST_F(ScratchLock, OneShardedTrainerAtATime) {
    const Location run{std::make_shared<MemoryStore>(), "run", "memory:run"};
    value_of(init_run(run, {}));
    {
        const ShardedPublisher first =
            value_of(ShardedPublisher::open(run, folder_ / "scratch", {}));
        EXPECT_EQ(outcome_of(ShardedPublisher::open(run, folder_ / "scratch", {})), "conflict");
        EXPECT_EQ(outcome_of(open()), "conflict");
    }
    value_of(ShardedPublisher::open(run, folder_ / "scratch", {}));
}

TEST_F(ScratchLock, AForkedChildNeitherHoldsNorReleasesIt) {
    auto first = value_of(open());
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        first.reset();  // as its parent's, this must take nothing from the parent
        (void)!::write(pipe[1], "x", 1);
        ::pause();
        ::_exit(0);
    }
    char ready = 0;
    ASSERT_EQ(::read(pipe[0], &ready, 1), 1);
    EXPECT_EQ(outcome_of(open()), "conflict");
    first.reset();
    value_of(open());
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(pipe[0]);
    ::close(pipe[1]);
}

}  // namespace
}  // namespace wisp::testing
