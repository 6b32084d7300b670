// What objects were before their last writes, for stores that answer from the past. Thread-safe.
//
// Time is counted in operations, so that a simulation repeats exactly. Several fault stores over
// one store share one history, else they would not know each other's writes.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "wisp/store.hpp"

namespace wisp {

struct PastObject {
    std::vector<std::byte> bytes;
    std::int64_t modified_ms = 0;
};

class ObjectHistory {
  public:
    /// Remembers this many operations.
    explicit ObjectHistory(std::uint64_t depth) : depth_(depth) {}

    std::uint64_t depth() const { return depth_; }
    void count_operation();

    /// Does `write` and remembers what `key` held before, as one step.
    template <class Write>
    auto remember(Store& store, const std::string& key, Write write) {
        const std::lock_guard lock(mutex_);
        note(store, key);
        return write();
    }

    /// The object `lag` operations ago; nothing when it was as it is now.
    struct Answer {
        std::optional<PastObject> object;  // absent then
    };
    std::optional<Answer> as_of(const std::string& key, std::uint64_t lag);
    /// The same for all objects that changed since.
    std::map<std::string, Answer> changed_since(std::uint64_t lag);

  private:
    struct Change {
        std::uint64_t operation = 0;
        std::optional<PastObject> before;
    };
    void note(Store& store, const std::string& key);

    std::mutex mutex_;
    std::uint64_t depth_;
    std::uint64_t operation_ = 0;
    std::map<std::string, std::deque<Change>> changes_;
};

}  // namespace wisp
