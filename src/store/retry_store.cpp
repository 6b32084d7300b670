#include "store/retry_store.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "wisp/control.hpp"

namespace wisp {

bool RetryStore::pause_after(const Error& error, Patience& patience) {
    if (error.kind != ErrorKind::kUnavailable || stopped()) return false;
    if (++patience.tried >= plan_.tries) return false;
    // Decorrelated jitter: callers that failed together must not come back together.
    const auto shortest = static_cast<std::uint64_t>(plan_.shortest_pause.count());
    const auto reach =
        std::max(shortest, static_cast<std::uint64_t>(3 * patience.last_pause.count()));
    std::uint64_t pause = 0;
    {
        const std::lock_guard lock(mutex_);
        pause = shortest + random_.below(reach - shortest + 1);
    }
    pause = std::min(pause, static_cast<std::uint64_t>(plan_.longest_pause.count()));
    patience.last_pause = Milliseconds(pause);
    if (error.retry_after_ms) pause = std::max<std::uint64_t>(pause, *error.retry_after_ms);
    const std::int64_t passed = clock_->now_ms() - patience.started_ms;
    if (passed + static_cast<std::int64_t>(pause) > plan_.total.count()) return false;
    clock_->sleep_for(Milliseconds(pause));
    return !stopped();
}

template <class Call>
auto RetryStore::persist(Call call) {
    Patience patience{clock_->now_ms(), 0, plan_.shortest_pause};
    for (;;) {
        auto result = call();
        if (result || !pause_after(result.error(), patience)) return result;
    }
}

Result<void> RetryStore::put(const std::string& key, std::span<const std::byte> bytes) {
    return persist([&] { return inner_->put(key, bytes); });
}

Result<Created> RetryStore::create(const std::string& key, std::span<const std::byte> bytes) {
    bool doubtful = false;
    auto created = persist([&] {
        auto result = inner_->create(key, bytes);
        if (!result && result.error().kind == ErrorKind::kUnavailable) doubtful = true;
        return result;
    });
    const bool decided = !created || *created == Created::kNew || !doubtful;
    return decided ? created : resolve_doubt(key, bytes);
}

Result<Created> RetryStore::resolve_doubt(const std::string& key,
                                          std::span<const std::byte> bytes) {
    std::vector<std::byte> found(bytes.size() + 1);
    auto count = read(key, 0, found);
    if (!count && count.error().kind == ErrorKind::kNotFound) {
        return fail(ErrorKind::kUnavailable,
                    fmt::format("object {} was there when it was to be created and is gone now; "
                                "try again",
                                shown(key)));
    }
    if (!count) return std::unexpected(count.error());
    found.resize(*count);
    return std::ranges::equal(found, bytes) ? Created::kNew : Created::kAlreadyThere;
}

Result<std::size_t> RetryStore::read(const std::string& key, std::uint64_t offset,
                                     std::span<std::byte> into) {
    return persist([&] { return inner_->read(key, offset, into); });
}

Result<ObjectInfo> RetryStore::head(const std::string& key) {
    return persist([&] { return inner_->head(key); });
}

Result<void> RetryStore::remove(const std::string& key) {
    return persist([&] { return inner_->remove(key); });
}

Result<std::vector<ListedObject>> RetryStore::list(const std::string& prefix,
                                                   const std::string& after, std::size_t limit) {
    return persist([&] { return inner_->list(prefix, after, limit); });
}

Result<std::int64_t> RetryStore::now_ms() {
    return persist([&] { return inner_->now_ms(); });
}

std::shared_ptr<Store> with_retries(std::shared_ptr<Store> store) {
    return std::make_shared<RetryStore>(std::move(store));
}

}  // namespace wisp
