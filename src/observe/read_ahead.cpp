#include "observe/read_ahead.hpp"

#include <algorithm>
#include <cstring>

#include "base/without_throwing.hpp"

namespace wisp {
namespace {

constexpr std::size_t kAtOnce = 24;
// Answers that nobody has called for yet: 16 MiB, if every object is as large as it may be.
constexpr std::size_t kMostHeld = 256;
// What read_whole() of a small object asks for first, and more.
constexpr std::size_t kExpectedBytes = (std::size_t{1} << 16) + 1;

/// Nothing when none was expected.
template <class Map>
std::optional<typename Map::mapped_type> take(Map& from, const typename Map::key_type& key) {
    const auto found = from.find(key);
    if (found == from.end()) return std::nullopt;
    auto taken = std::move(found->second);
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
        news_.wait(lock, [&] { return ended_ || (!waiting_.empty() && held_ < kMostHeld); });
        if (ended_) return;
        const std::shared_ptr<Turn> turn = std::move(waiting_.front());
        waiting_.pop_front();
        if (turn->begun.exchange(true)) continue;
        ++held_;
        lock.unlock();
        turn->run();
        lock.lock();
    }
}

template <class T>
ReadAhead::Expected<T> ReadAhead::ask(std::function<T()> request) {
    auto task = std::make_shared<std::packaged_task<T()>>(
        [request = std::move(request)] { return without_throwing(request); });
    Expected<T> expected{task->get_future(), std::make_shared<Turn>()};
    expected.turn->run = [task] { (*task)(); };
    waiting_.push_back(expected.turn);
    // With no thread to be had, it is asked when it is wanted.
    if (threads_.size() < std::min(kAtOnce, waiting_.size() + threads_.size())) {
        (void)start_thread(threads_, [this] { work(); });
    }
    news_.notify_one();
    return expected;
}

template <class T>
T ReadAhead::answer_of(Expected<T> expected) {
    // Not begun yet: the caller that wants it does not wait behind others.
    if (!expected.turn->begun.exchange(true)) {
        expected.turn->run();
        return expected.answer.get();
    }
    T answer = expected.answer.get();
    const std::scoped_lock lock(mutex_);
    --held_;
    news_.notify_one();
    return answer;
}

void ReadAhead::expect(const std::string& key) {
    const std::scoped_lock lock(mutex_);
    objects_.emplace(key, ask<Bytes>([this, key]() -> Bytes {
                         std::vector<std::byte> bytes(kExpectedBytes);
                         const auto count = store_->read(key, 0, bytes);
                         if (!count) return std::unexpected(count.error());
                         // No more than it holds: thousands may be waiting.
                         return std::vector<std::byte>(
                             bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(*count));
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
    std::optional<Expected<Bytes>> expected;
    if (offset == 0) {
        const std::scoped_lock lock(mutex_);
        expected = take(objects_, key);
    }
    if (!expected) return store_->read(key, offset, into);
    const Bytes bytes = answer_of(std::move(*expected));
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
    std::optional<Expected<Listing>> expected;
    {
        const std::scoped_lock lock(mutex_);
        expected = take(listings_, ListKey(prefix, after, limit));
    }
    return expected ? answer_of(std::move(*expected)) : store_->list(prefix, after, limit);
}

Result<std::int64_t> ReadAhead::now_ms() {
    std::optional<Expected<Result<std::int64_t>>> expected;
    {
        const std::scoped_lock lock(mutex_);
        if (!times_.empty()) {
            expected = std::move(times_.front());
            times_.pop_front();
        }
    }
    return expected ? answer_of(std::move(*expected)) : store_->now_ms();
}

}  // namespace wisp
