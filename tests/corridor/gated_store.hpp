// A store whose commits wait for the test.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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

}  // namespace wisp::testing
