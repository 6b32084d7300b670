#include "observe/read_ahead.hpp"

#include <algorithm>
#include <cstring>

#include "base/without_throwing.hpp"

namespace wisp {
namespace {

constexpr std::size_t kAtOnce = 24;
// What read_whole() of a small object asks for first, and more.
constexpr std::size_t kExpectedBytes = (std::size_t{1} << 16) + 1;

/// Nothing when none was expected.
template <class Key, class T>
std::optional<std::future<T>> take(std::multimap<Key, std::future<T>>& from, const Key& key) {
    const auto found = from.find(key);
    if (found == from.end()) return std::nullopt;
    std::future<T> taken = std::move(found->second);
    from.erase(found);
    return taken;
}

}  // namespace

ReadAhead::ReadAhead(std::shared_ptr<Store> store)
    : store_(std::move(store)), scope_(StopScope::innermost()) {}

ReadAhead::~ReadAhead() {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
    waiting_.clear();
    news_.notify_all();
}

void ReadAhead::work() {
    const StopScope handed_on(scope_);
    std::unique_lock lock(mutex_);
    for (;;) {
        news_.wait(lock, [&] { return ended_ || !waiting_.empty(); });
        if (ended_) return;
        const auto request = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        request();
        lock.lock();
    }
}

template <class T>
std::future<T> ReadAhead::ask(std::function<T()> request) {
    auto task = std::make_shared<std::packaged_task<T()>>(
        [request = std::move(request)] { return without_throwing(request); });
    std::future<T> answer = task->get_future();
    waiting_.emplace_back([task] { (*task)(); });
    const bool all_busy = threads_.size() < std::min(kAtOnce, waiting_.size() + threads_.size());
    if (all_busy && !start_thread(threads_, [this] { work(); }) && threads_.empty()) {
        // No thread to be had: asked when it is wanted.
        waiting_.pop_back();
        (*task)();
    }
    news_.notify_one();
    return answer;
}

void ReadAhead::expect(const std::string& key) {
    const std::scoped_lock lock(mutex_);
    objects_.emplace(key, ask<Bytes>([this, key]() -> Bytes {
                         std::vector<std::byte> bytes(kExpectedBytes);
                         const auto count = store_->read(key, 0, bytes);
                         if (!count) return std::unexpected(count.error());
                         bytes.resize(*count);
                         return bytes;
                     }));
}

void ReadAhead::expect_list(const std::string& prefix, const std::string& after,
                            std::size_t limit) {
    const std::scoped_lock lock(mutex_);
    listings_.emplace(ListKey(prefix, after, limit), ask<Listing>([this, prefix, after, limit] {
                          return store_->list(prefix, after, limit);
                      }));
}

void ReadAhead::expect_now() {
    const std::scoped_lock lock(mutex_);
    times_.push_back(ask<Result<std::int64_t>>([this] { return store_->now_ms(); }));
}

Result<void> ReadAhead::put(const std::string& key, std::span<const std::byte> bytes) {
    return store_->put(key, bytes);
}

Result<Created> ReadAhead::create(const std::string& key, std::span<const std::byte> bytes) {
    return store_->create(key, bytes);
}

Result<std::size_t> ReadAhead::read(const std::string& key, std::uint64_t offset,
                                    std::span<std::byte> into) {
    std::optional<std::future<Bytes>> expected;
    if (offset == 0) {
        const std::scoped_lock lock(mutex_);
        expected = take(objects_, key);
    }
    if (!expected) return store_->read(key, offset, into);
    const Bytes bytes = expected->get();
    if (!bytes) return std::unexpected(bytes.error());
    // There may be more of it than was asked for.
    const bool is_whole = bytes->size() < kExpectedBytes;
    if (!is_whole && into.size() > bytes->size()) return store_->read(key, offset, into);
    const std::size_t count = std::min(into.size(), bytes->size());
    if (count > 0) std::memcpy(into.data(), bytes->data(), count);
    return count;
}

Result<std::vector<ListedObject>> ReadAhead::list(const std::string& prefix,
                                                  const std::string& after, std::size_t limit) {
    std::optional<std::future<Listing>> expected;
    {
        const std::scoped_lock lock(mutex_);
        expected = take(listings_, ListKey(prefix, after, limit));
    }
    return expected ? expected->get() : store_->list(prefix, after, limit);
}

Result<std::int64_t> ReadAhead::now_ms() {
    std::optional<std::future<Result<std::int64_t>>> expected;
    {
        const std::scoped_lock lock(mutex_);
        if (!times_.empty()) {
            expected = std::move(times_.front());
            times_.pop_front();
        }
    }
    return expected ? expected->get() : store_->now_ms();
}

}  // namespace wisp
