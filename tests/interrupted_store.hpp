// A store in memory to which something happens while somebody is at work.
#pragma once

#include <deque>
#include <functional>
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
        if (replies.empty() || !key.ends_with(interrupted_at)) {
            return MemoryStore::read(key, offset, into);
        }
        const std::string reply = std::exchange(replies.front(), {});
        replies.pop_front();
        return reply.copy(reinterpret_cast<char*>(into.data()), into.size());
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
    std::deque<std::string> replies;  // what reads get there instead, from the first byte on

  private:
    void interrupt(const std::string& at) {
        if (!at.ends_with(interrupted_at)) return;
        if (const auto happens = std::exchange(meanwhile, {})) happens();
    }
};

}  // namespace wisp::testing
