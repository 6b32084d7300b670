#include "doubles/object_history.hpp"

#include <limits>

namespace wisp {

void ObjectHistory::count_operation() {
    const std::lock_guard lock(mutex_);
    ++operation_;
}

void ObjectHistory::note(Store& store, const std::string& key) {
    if (depth_ == 0) return;
    Change change{operation_, std::nullopt};
    const auto info = store.head(key);
    if (auto bytes = read_whole(store, key, std::numeric_limits<std::uint32_t>::max());
        info && bytes) {
        change.before = PastObject{std::move(*bytes), info->modified_ms};
    }
    auto& changes = changes_[key];
    changes.push_back(std::move(change));
    while (changes.front().operation + depth_ < operation_) changes.pop_front();
}

std::optional<ObjectHistory::Answer> ObjectHistory::as_of(const std::string& key,
                                                          std::uint64_t lag) {
    const std::lock_guard lock(mutex_);
    const auto found = changes_.find(key);
    if (found == changes_.end()) return std::nullopt;
    // The first write since then took away what was there then.
    for (const Change& change : found->second) {
        if (change.operation + lag >= operation_) return Answer{change.before};
    }
    return std::nullopt;
}

std::map<std::string, ObjectHistory::Answer> ObjectHistory::changed_since(std::uint64_t lag) {
    const std::lock_guard lock(mutex_);
    std::map<std::string, Answer> answers;
    for (const auto& [key, changes] : changes_) {
        for (const Change& change : changes) {
            if (change.operation + lag < operation_) continue;
            answers.emplace(key, Answer{change.before});
            break;
        }
    }
    return answers;
}

}  // namespace wisp
