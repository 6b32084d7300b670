#include "observe/read_ahead.hpp"

#include <gtest/gtest.h>

#include <condition_variable>

#include "base/bytes.hpp"
#include "doubles/memory_store.hpp"
#include "expect_result.hpp"

namespace wisp::testing {
namespace {

/// Answers reads only when several are under way.
class TogetherStore : public MemoryStore {
  public:
    explicit TogetherStore(int together) : together_(together) {}
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        {
            std::unique_lock lock(mutex_);
            ++reads_;
            changed_.notify_all();
            changed_.wait(lock, [&] { return reads_ >= together_; });
        }
        return MemoryStore::read(key, offset, into);
    }
    int reads() const { return reads_; }

  private:
    const int together_;
    std::mutex mutex_;
    std::condition_variable changed_;
    int reads_ = 0;
};

class CountingStore : public MemoryStore {
  public:
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        auto count = MemoryStore::read(key, offset, into);
        const std::scoped_lock lock(mutex_);
        ++reads_;
        changed_.notify_all();
        return count;
    }
    void await_reads(int count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return reads_ >= count; });
    }
    int reads() {
        const std::scoped_lock lock(mutex_);
        return reads_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int reads_ = 0;
};

std::string text_of(Store& store, const std::string& key) {
    const auto bytes = read_whole(store, key, 100);
    return bytes ? std::string(as_text(*bytes)) : std::string(name_of(bytes.error().kind));
}

TEST(ReadAhead, AsksForWhatIsExpectedAtOnce) {
    const auto store = std::make_shared<TogetherStore>(3);
    value_of(store->put("a", as_bytes("first")));
    value_of(store->put("b", as_bytes("second")));
    ReadAhead ahead(store);
    for (const char* key : {"a", "b", "none"}) ahead.expect(key);
    // One after the other none of them would be answered.
    EXPECT_EQ(text_of(ahead, "none"), "not_found");
    EXPECT_EQ(text_of(ahead, "b"), "second");
    EXPECT_EQ(text_of(ahead, "a"), "first");
    EXPECT_EQ(store->reads(), 3);
}

TEST(ReadAhead, AnswersOnceAndThenAsksAgain) {
    const auto store = std::make_shared<TogetherStore>(1);
    value_of(store->put("a", as_bytes("old")));
    ReadAhead ahead(store);
    ahead.expect("a");
    EXPECT_EQ(text_of(ahead, "a"), "old");
    value_of(store->put("a", as_bytes("new")));
    EXPECT_EQ(text_of(ahead, "a"), "new");
    EXPECT_EQ(store->reads(), 2);
}

TEST(ReadAhead, ListsAndTellsTheTimeAsTheStoreDoes) {
    const auto store = std::make_shared<MemoryStore>();
    value_of(store->put("run/a", {}));
    ReadAhead ahead(store);
    ahead.expect_list("run/", "", 10);
    ahead.expect_now();
    EXPECT_EQ(value_of(ahead.list("run/", "", 10)).size(), 1U);
    EXPECT_EQ(value_of(ahead.list("run/", "run/a", 10)).size(), 0U) << "another question";
    EXPECT_GT(value_of(ahead.now_ms()), 0);
    EXPECT_GT(value_of(ahead.now_ms()), 0);
}

TEST(ReadAhead, GivesUpWhatNobodyCameFor) {
    const auto store = std::make_shared<MemoryStore>();
    ReadAhead ahead(store);
    for (int i = 0; i < 200; ++i) ahead.expect("key" + std::to_string(i));
}

TEST(ReadAhead, KeepsNoMoreAnswersThanItMayHold) {
    constexpr int kHeld = 256;
    const auto store = std::make_shared<CountingStore>();
    for (int i = 0; i < 1000; ++i) value_of(store->put("key" + std::to_string(i), as_bytes("x")));
    ReadAhead ahead(store);
    for (int i = 0; i < 1000; ++i) ahead.expect("key" + std::to_string(i));
    store->await_reads(kHeld);
    EXPECT_EQ(text_of(ahead, "key999"), "x") << "one that nobody has begun is asked at once";
    EXPECT_EQ(store->reads(), kHeld + 1);
    EXPECT_EQ(text_of(ahead, "key0"), "x");
    store->await_reads(kHeld + 2);
    // In whatever order they are called for, all are answered.
    for (int i = 998; i > 0; --i) EXPECT_EQ(text_of(ahead, "key" + std::to_string(i)), "x");
    EXPECT_EQ(store->reads(), 1000);
}

}  // namespace
}  // namespace wisp::testing
