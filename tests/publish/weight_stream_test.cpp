// Publishing weights that are handed over group by group, or as lists of changes.
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/block_feed.hpp"
#include "checkpoint_steps.hpp"
#include "delta/delta_writer.hpp"
#include "doubles/memory_store.hpp"
#include "wisp/async_publisher.hpp"
#include "wisp/follower.hpp"

namespace wisp::testing {
namespace {

constexpr std::uint64_t kElements = 2 * kBlockElements + 12345;

/// One large float32 tensor, published as bf16, and a small one, through one reusable buffer.
class TrainerStream : public WeightStream {
  public:
    TrainerStream()
        : schema_(value_of(Schema::make({{"large", Dtype::kBf16, {kElements}},
                                         {"none", Dtype::kF32, {0}},
                                         {"small", Dtype::kI64, {3}}}))),
          large_(kElements),
          small_{1, 2, 3} {
        for (std::size_t i = 0; i < large_.size(); ++i) {
            large_[i] = 0.001F * static_cast<float>(i % 1000);
        }
    }
    const Schema& schema() const override { return schema_; }
    Result<void> restart() override {
        at_ = 0;
        ++starts;
        return {};
    }
    Result<std::span<const WeightPiece>> next() override {
        pieces_.clear();
        const std::uint64_t first = at_ * kBlockElements;
        buffer_.assign(buffer_.size(), -1.0F);  // what was handed out before is gone
        if (first < kElements) {
            const std::uint64_t count = std::min(kBlockElements, kElements - first);
            buffer_.assign(large_.begin() + static_cast<std::ptrdiff_t>(first),
                           large_.begin() + static_cast<std::ptrdiff_t>(first + count));
            pieces_.push_back({0, first, std::as_bytes(std::span(buffer_)), true});
        } else if (at_ == 3) {
            pieces_.push_back({2, 0, std::as_bytes(std::span(small_)), false});
        }
        ++at_;
        if (skip_last && at_ == 4) pieces_.clear();
        return pieces_;
    }
    void move(std::size_t i) { large_[i] += 0.5F; }
    float large(std::size_t i) const { return large_[i]; }

    int starts = 0;
    bool skip_last = false;

  private:
    Schema schema_;
    std::vector<float> large_;
    std::vector<std::int64_t> small_;
    std::vector<float> buffer_;
    std::vector<WeightPiece> pieces_;
    std::uint64_t at_ = 0;
};

class OneList : public ChangeStream {
  public:
    explicit OneList(const Schema& schema) : schema_(schema) {}
    const Schema& schema() const override { return schema_; }
    Result<TensorChanges> next() override {
        if (given_) return TensorChanges{};
        given_ = true;
        return TensorChanges{tensor, 0, positions, std::as_bytes(std::span(before)),
                             std::as_bytes(std::span(after))};
    }
    std::size_t tensor = 0;
    std::vector<std::uint32_t> positions;
    std::vector<std::uint16_t> before;
    std::vector<std::uint16_t> after;

  private:
    const Schema& schema_;
    bool given_ = false;
};

class Streams : public ::testing::Test {
  protected:
    Streams() {
        value_of(init_run(run_, {}));
        publisher_.emplace(
            value_of(AsyncPublisher::start(value_of(Publisher::open(run_, *baseline_, {})), {})));
    }
    Result<void> submit(WeightStream& weights, std::uint64_t step) {
        const auto submitted = publisher_->submit(weights, step);
        if (!submitted) return std::unexpected(submitted.error());
        return publisher_->flush();
    }
    std::unique_ptr<Replica> joined() {
        auto replica = value_of(open_memory_replica());
        value_of(value_of(Follower::open(run_, *replica, {})).catch_up());
        return replica;
    }
    std::uint16_t published(std::size_t i) {
        const auto replica = joined();
        std::uint16_t bits = 0;
        std::memcpy(&bits, replica->weights()->bytes(0).data() + i * 2, 2);
        return bits;
    }

    Location run_{std::make_shared<MemoryStore>(system_clock()), "run", "memory:run"};
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
    std::optional<AsyncPublisher> publisher_;
    TrainerStream trainer_;
};

TEST_F(Streams, ArePublishedPieceByPiece) {
    value_of(submit(trainer_, 1));
    EXPECT_EQ(published(2), 0x3B03);  // 0.002
    for (const std::size_t i : {std::size_t{0}, std::size_t{kBlockElements}, kElements - 1}) {
        trainer_.move(i);
    }
    value_of(submit(trainer_, 2));
    EXPECT_EQ(published(0), 0x3F00);  // 0.5
    EXPECT_EQ(value_of(digest_of(*joined()->weights())),
              value_of(digest_of(*baseline_->weights())));
    EXPECT_EQ(value_of(read_log(run_, 1, {})).front().changed_elements, 3U);
}

TEST_F(Streams, AFirstStateIsReadOnce) {
    value_of(submit(trainer_, 1));
    EXPECT_EQ(trainer_.starts, 1);
}

TEST_F(Streams, ThatEndEarlyAreRefused) {
    value_of(submit(trainer_, 1));
    trainer_.skip_last = true;
    EXPECT_EQ(outcome_of(submit(trainer_, 2)), "invalid");
    trainer_.skip_last = false;
    trainer_.move(7);
    value_of(submit(trainer_, 3));
    EXPECT_EQ(value_of(read_log(run_, 1, {})).front().changed_elements, 1U);
}

TEST_F(Streams, ListsOfChangesMakeTheSameState) {
    value_of(submit(trainer_, 1));
    OneList list(trainer_.schema());
    list.positions = {2, 5, static_cast<std::uint32_t>(kBlockElements + 2)};
    list.before = {published(2), published(5), published(kBlockElements + 2)};
    list.after = {0x3F80, list.before[1], 0xFFC1};
    value_of(publisher_->submit(list, 2));
    value_of(publisher_->flush());
    EXPECT_EQ(published(2), 0x3F80);
    EXPECT_EQ(published(kBlockElements + 2), 0xFFC1);
    EXPECT_EQ(value_of(read_log(run_, 1, {})).front().changed_elements, 2U);
    EXPECT_EQ(value_of(digest_of(*joined()->weights())), value_of(read_log(run_, 1, {}))[0].state);
}

TEST_F(Streams, ListsTooLongToBeKeptMakeTheSameState) {
    value_of(submit(trainer_, 1));
    publisher_.reset();
    PublishOptions little;
    little.change_buffer_bytes = 0;
    publisher_.emplace(
        value_of(AsyncPublisher::start(value_of(Publisher::open(run_, *baseline_, little)), {})));
    const auto before = joined();
    OneList list(trainer_.schema());
    // Some in a block that is kept at first, then more than there is room for.
    list.positions = {3, 4};
    for (std::uint32_t i = 0; i < 50'000; ++i) {
        list.positions.push_back(static_cast<std::uint32_t>(kBlockElements) + i);
    }
    for (const std::uint32_t position : list.positions) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, before->weights()->bytes(0).data() + position * 2, 2);
        list.before.push_back(bits);
        list.after.push_back(static_cast<std::uint16_t>(bits ^ 0x1));
    }
    value_of(publisher_->submit(list, 2));
    value_of(publisher_->flush());
    EXPECT_EQ(value_of(read_log(run_, 1, {})).front().changed_elements, 50'002U);
    EXPECT_EQ(published(4), list.after[1]);
    EXPECT_EQ(published(kBlockElements + 49'999), list.after.back());
    EXPECT_EQ(value_of(digest_of(*joined()->weights())),
              value_of(digest_of(*baseline_->weights())));
}

TEST_F(Streams, ListsThatDoNotFitAreRefused) {
    value_of(submit(trainer_, 1));
    const auto outcome = [&](std::vector<std::uint32_t> positions, std::uint16_t before) {
        OneList list(trainer_.schema());
        list.before.assign(positions.size(), before);
        list.after.assign(positions.size(), 0x3F80);
        list.positions = std::move(positions);
        return outcome_of(publisher_->submit(list, 2));
    };
    EXPECT_EQ(outcome({2}, 0x1234), "wrong_base");
    EXPECT_EQ(outcome({5, 2}, 0), "invalid");
    EXPECT_EQ(outcome({2, 2}, 0), "invalid");
    EXPECT_EQ(outcome({static_cast<std::uint32_t>(kElements)}, 0), "invalid");
}

}  // namespace
}  // namespace wisp::testing
