// A store in memory to which something happens while somebody is at work. Set up from one thread,
// used from several.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "doubles/memory_store.hpp"

namespace wisp::testing {

/// Something happens just before it answers, once; or replies are not what was stored.
class InterruptedStore : public MemoryStore {
  public:
    using MemoryStore::MemoryStore;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        interrupt(key);
        if (is_there(key) && late_reads > 0) {
            --late_reads;
            return fail(ErrorKind::kNotFound, key + " is not to be read yet");
        }
        const auto reply = take_reply(key);
        if (!reply) return MemoryStore::read(key, offset, into);
        return reply->copy(reinterpret_cast<char*>(into.data()), into.size());
    }
    Result<ObjectInfo> head(const std::string& key) override {
        interrupt(key);
        return MemoryStore::head(key);
    }
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        interrupt(prefix);
        return MemoryStore::list(prefix, after, limit);
    }
    std::string interrupted_at;
    std::function<void()> meanwhile;
    int late_reads = 0;               // so many find nothing there, whatever create() says
    std::deque<std::string> replies;  // what reads get there instead, from the first byte on

  private:
    bool is_there(const std::string& key) const {
        return !interrupted_at.empty() && key.ends_with(interrupted_at);
    }
    void interrupt(const std::string& key) {
        if (!is_there(key)) return;
        std::function<void()> happens;
        {
            const std::lock_guard lock(mutex_);
            happens = std::exchange(meanwhile, {});
        }
        if (happens) happens();
    }
    std::optional<std::string> take_reply(const std::string& key) {
        const std::lock_guard lock(mutex_);
        if (!is_there(key) || replies.empty()) return std::nullopt;
        std::string reply = std::move(replies.front());
        replies.pop_front();
        return reply;
    }

    std::mutex mutex_;
};

}  // namespace wisp::testing
