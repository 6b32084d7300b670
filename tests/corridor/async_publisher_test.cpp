// Publishing behind the trainer's back, with a store whose uploads wait for the test.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "checkpoint_steps.hpp"
#include "store/memory_store.hpp"
#include "wisp/follower.hpp"
#include "wisp/publisher.hpp"

namespace wisp::testing {
namespace {

/// Lets writes of commits through one by one.
class GatedStore : public Store {
  public:
    explicit GatedStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}
    void close() { set(false); }
    void open() { set(true); }
    /// Until somebody stands before the closed gate.
    void await_arrival() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return arrived_; });
    }
    /// From now on that many commits are written, but their answers are lost.
    void lose_answers(int count) {
        const std::lock_guard lock(mutex_);
        lost_ = count;
    }

    std::string label() const override { return "gated"; }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override {
        return inner_->put(key, bytes);
    }
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override {
        bool lose = false;
        {
            std::unique_lock lock(mutex_);
            arrived_ = true;
            changed_.notify_all();
            changed_.wait(lock, [&] { return open_; });
            arrived_ = false;
            lose = lost_ > 0;
            if (lose) --lost_;
        }
        auto created = inner_->create(key, bytes);
        if (lose) {
            hidden_ = key;
            return fail(ErrorKind::kUnavailable, "the answer was lost");
        }
        return created;
    }
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        if (key == hidden_) {
            hidden_.clear();
            return fail(ErrorKind::kUnavailable, "the network is down");
        }
        return inner_->read(key, offset, into);
    }
    Result<ObjectInfo> head(const std::string& key) override { return inner_->head(key); }
    Result<void> remove(const std::string& key) override { return inner_->remove(key); }
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        return inner_->list(prefix, after, limit);
    }
    Result<std::int64_t> now_ms() override { return inner_->now_ms(); }

  private:
    void set(bool open) {
        const std::lock_guard lock(mutex_);
        open_ = open;
        changed_.notify_all();
    }
    std::shared_ptr<Store> inner_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = true;
    bool arrived_ = false;
    int lost_ = 0;
    std::string hidden_;
};

class Async : public ::testing::Test {
  protected:
    Async() { value_of(init_run(run_, {})); }
    ~Async() override { store_->open(); }

    Checkpoint state(std::size_t i) { return value_of(Checkpoint::open(steps_.state(i))); }
    AsyncPublisher start() {
        baseline_ = value_of(open_memory_replica());
        return value_of(AsyncPublisher::start(value_of(Publisher::open(run_, *baseline_, {})),
                                              [&](const Result<PublishReport>& report) {
                                                  if (report) committed_.push_back(report->step);
                                              }));
    }
    StateDigest joined() {
        auto replica = value_of(open_memory_replica());
        Follower follower = value_of(Follower::open(run_, *replica, {}));
        value_of(follower.catch_up());
        return value_of(digest_of(*replica->weights()));
    }

    CheckpointSteps steps_{8};
    std::shared_ptr<GatedStore> store_ =
        std::make_shared<GatedStore>(std::make_shared<MemoryStore>(system_clock()));
    Location run_{store_, "run", "gated:run"};
    std::unique_ptr<Replica> baseline_;
    std::vector<std::uint64_t> committed_;  // written by the uploading thread, read after flush()
};

TEST_F(Async, EveryStepIsCommittedInOrder) {
    AsyncPublisher publisher = start();
    for (std::size_t i = 0; i < 8; ++i) {
        value_of(publisher.submit(state(i), i));
        value_of(publisher.flush());
    }
    EXPECT_EQ(committed_, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(joined(), steps_.digest(7));
}

TEST_F(Async, StepsThatWaitAreFoldedIntoTheNewest) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    store_->close();
    value_of(publisher.submit(state(1), 1));
    store_->await_arrival();
    EXPECT_FALSE(value_of(publisher.submit(state(2), 2)).folded);
    EXPECT_TRUE(value_of(publisher.submit(state(3), 3)).folded);
    EXPECT_TRUE(value_of(publisher.submit(state(4), 4)).folded);
    store_->open();
    value_of(publisher.flush());
    EXPECT_EQ(committed_, (std::vector<std::uint64_t>{0, 1, 4}));
    EXPECT_EQ(joined(), steps_.digest(4));
    value_of(publisher.submit(state(5), 5));
    value_of(publisher.flush());
    EXPECT_EQ(joined(), steps_.digest(5));
}

TEST_F(Async, ALostAnswerIsFoundOut) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    store_->lose_answers(1);
    value_of(publisher.submit(state(1), 1));
    while (!publisher.flush()) {
    }
    value_of(publisher.submit(state(2), 2));
    while (!publisher.flush()) {
    }
    EXPECT_EQ(committed_, (std::vector<std::uint64_t>{0, 1, 2}));
    EXPECT_EQ(joined(), steps_.digest(2));
}

TEST_F(Async, ATakenOverRunIsLeftForGood) {
    AsyncPublisher publisher = start();
    value_of(publisher.submit(state(0), 0));
    auto other = value_of(open_memory_replica());
    Publisher second = value_of(Publisher::open(run_, *other, {}));
    value_of(publisher.submit(state(1), 1));
    EXPECT_EQ(outcome_of(publisher.flush()), "fenced");
    EXPECT_EQ(outcome_of(publisher.submit(state(2), 2)), "fenced");
    value_of(second.publish(state(3), 3));
    EXPECT_EQ(joined(), steps_.digest(3));
}

}  // namespace
}  // namespace wisp::testing
