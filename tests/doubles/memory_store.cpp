#include "doubles/memory_store.hpp"

#include <algorithm>

#include "base/try.hpp"
#include "store/store_keys.hpp"

namespace wisp {

Result<void> MemoryStore::put(const std::string& key, std::span<const std::byte> bytes) {
    WISP_TRY(check_key(key));
    Object object{{bytes.begin(), bytes.end()}, clock_->now_ms()};
    const std::lock_guard lock(mutex_);
    objects_.insert_or_assign(key, std::move(object));
    return {};
}

Result<Created> MemoryStore::create(const std::string& key, std::span<const std::byte> bytes) {
    WISP_TRY(check_key(key));
    Object object{{bytes.begin(), bytes.end()}, clock_->now_ms()};
    const std::lock_guard lock(mutex_);
    return objects_.try_emplace(key, std::move(object)).second ? Created::kNew
                                                               : Created::kAlreadyThere;
}

Result<std::size_t> MemoryStore::read(const std::string& key, std::uint64_t offset,
                                      std::span<std::byte> into) {
    WISP_TRY(check_key(key));
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(key);
    if (found == objects_.end()) return std::unexpected(no_such_object(key));
    const std::span<const std::byte> bytes = found->second.bytes;
    if (offset >= bytes.size()) return 0;
    const auto part = bytes.subspan(offset);
    const std::size_t count = std::min(part.size(), into.size());
    std::ranges::copy(part.first(count), into.begin());
    return count;
}

Result<ObjectInfo> MemoryStore::head(const std::string& key) {
    WISP_TRY(check_key(key));
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(key);
    if (found == objects_.end()) return std::unexpected(no_such_object(key));
    return found->second.info();
}

Result<void> MemoryStore::remove(const std::string& key) {
    WISP_TRY(check_key(key));
    const std::lock_guard lock(mutex_);
    objects_.erase(key);
    return {};
}

Result<std::vector<ListedObject>> MemoryStore::list(const std::string& prefix,
                                                    const std::string& after, std::size_t limit) {
    WISP_TRY(check_prefix(prefix));
    std::vector<ListedObject> listed;
    const std::lock_guard lock(mutex_);
    // std::string compares bytes as unsigned, as object stores do.
    auto at = after < prefix ? objects_.lower_bound(prefix) : objects_.upper_bound(after);
    for (; at != objects_.end() && listed.size() < limit && at->first.starts_with(prefix); ++at) {
        listed.push_back({at->first, at->second.info()});
    }
    return listed;
}

}  // namespace wisp
