// A store whose commits wait for the test.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "wisp/store.hpp"

namespace wisp::testing {

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
    /// From now on everything is refused, until told otherwise.
    void refuse(bool all) { refusing_ = all; }
    /// From now on full states are refused, deltas and commits are not.
    void refuse_anchors(bool all) { refusing_anchors_ = all; }
    /// From now on reads wait until open().
    void hold_reads(bool all) {
        const std::lock_guard lock(mutex_);
        holding_reads_ = all;
        changed_.notify_all();
    }
    std::uint64_t requests() const { return requests_; }
    /// The next commit gets no answer, and is not there either until land() is called; after it
    /// everything is refused.
    void delay_next() {
        const std::lock_guard lock(mutex_);
        delaying_ = true;
    }
    Result<Created> land() {
        const std::lock_guard lock(mutex_);
        return inner_->create(delayed_key_, delayed_);
    }
    /// The next commit throws what no store should.
    void throw_next() {
        const std::lock_guard lock(mutex_);
        throwing_ = true;
    }
    /// From now on that many commits are written, but their answers are lost.
    void lose_answers(int count) {
        const std::lock_guard lock(mutex_);
        lost_ = count;
    }

    std::string label() const override { return "gated"; }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override {
        WISP_TRY(admit());
        if (refusing_anchors_ && key.find("/anchors/") != std::string::npos) {
            return fail(ErrorKind::kUnavailable, "no room for anchors");
        }
        return inner_->put(key, bytes);
    }
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override {
        WISP_TRY(admit());
        bool lose = false;
        {
            std::unique_lock lock(mutex_);
            if (std::exchange(throwing_, false)) throw std::bad_alloc();
            if (std::exchange(delaying_, false)) {
                delayed_key_ = key;
                delayed_.assign(bytes.begin(), bytes.end());
                refusing_ = true;
                return fail(ErrorKind::kUnavailable, "the answer was lost");
            }
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
        WISP_TRY(admit());
        {
            std::unique_lock lock(mutex_);
            if (holding_reads_) arrived_ = true;
            changed_.notify_all();
            changed_.wait(lock, [&] { return !holding_reads_; });
        }
        if (key == hidden_) {
            hidden_.clear();
            return fail(ErrorKind::kUnavailable, "the network is down");
        }
        return inner_->read(key, offset, into);
    }
    Result<ObjectInfo> head(const std::string& key) override {
        WISP_TRY(admit());
        return inner_->head(key);
    }
    Result<void> remove(const std::string& key) override { return inner_->remove(key); }
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        return inner_->list(prefix, after, limit);
    }
    Result<std::int64_t> now_ms() override { return inner_->now_ms(); }

  private:
    Result<void> admit() {
        ++requests_;
        if (refusing_) return fail(ErrorKind::kUnavailable, "the store refuses");
        return {};
    }
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
    bool holding_reads_ = false;
    bool delaying_ = false;
    bool throwing_ = false;
    std::string delayed_key_;
    std::vector<std::byte> delayed_;
    std::atomic<bool> refusing_ = false;
    std::atomic<bool> refusing_anchors_ = false;
    std::atomic<std::uint64_t> requests_ = 0;
    std::string hidden_;
};

}  // namespace wisp::testing
