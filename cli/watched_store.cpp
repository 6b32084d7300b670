#include "watched_store.hpp"

#include <fmt/format.h>

#include "diagnostics.hpp"
#include "live_line.hpp"

namespace wisp::cli {
namespace {

class WatchedStore : public Store {
  public:
    WatchedStore(std::shared_ptr<Store> store, Common common)
        : store_(std::move(store)), common_(std::move(common)) {}

    std::string label() const override { return store_->label(); }
    std::string bucket() const override { return store_->bucket(); }
    bool creates_exclusively() const override { return store_->creates_exclusively(); }
    StoreTerms terms() const override { return store_->terms(); }

    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override {
        return ask(
            "put", key, [&] { return store_->put(key, bytes); },
            [&](const auto&) { return human_bytes(bytes.size()); });
    }
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override {
        return ask(
            "create", key, [&] { return store_->create(key, bytes); },
            [&](const Created& made) {
                return human_bytes(bytes.size()) +
                       (made == Created::kNew ? "" : ", was there already");
            });
    }
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        return ask(
            "read", key, [&] { return store_->read(key, offset, into); },
            [&](std::size_t count) {
                const std::string from = offset == 0 ? "" : fmt::format(" from {}", offset);
                return human_bytes(count) + from;
            });
    }
    Result<ObjectInfo> head(const std::string& key) override {
        return ask(
            "look at", key, [&] { return store_->head(key); },
            [](const ObjectInfo& info) { return human_bytes(info.size_bytes); });
    }
    Result<void> remove(const std::string& key) override {
        return ask(
            "remove", key, [&] { return store_->remove(key); },
            [](const auto&) { return std::string("removed"); });
    }
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        return ask(
            "list", prefix, [&] { return store_->list(prefix, after, limit); },
            [](const std::vector<ListedObject>& found) { return counted(found.size(), "object"); });
    }
    Result<std::int64_t> now_ms() override {
        return ask(
            "ask for the time", "", [&] { return store_->now_ms(); },
            [](std::int64_t) { return std::string("told"); });
    }

  private:
    template <class Ask, class Tell>
    auto ask(const std::string& act, const std::string& key, const Ask& request, const Tell& got)
        -> decltype(request()) {
        const std::string what =
            key.empty() ? fmt::format("{} at {}", act, store_->label())
                        : fmt::format("{} {} at {}", act, printable(key), store_->label());
        const Stopwatch watch;
        auto answer = [&]() -> decltype(request()) {
            const LiveWait waiting(common_, what);
            return request();
        }();
        if (common_.verbose) {
            std::string found;
            if constexpr (std::is_same_v<decltype(request()), Result<void>>) {
                if (answer) found = got(0);
            } else {
                if (answer) found = got(*answer);
            }
            if (!answer) found = name_of(answer.error().kind);
            tell(Level::kInfo, common_.verb,
                 fmt::format("{}: {}, {}", what, found, human_seconds(watch.seconds())));
        }
        return answer;
    }

    std::shared_ptr<Store> store_;
    Common common_;
};

}  // namespace

Location watched(Location location, const Common& common) {
    if (!common.verbose && !draws_live_line(common)) return location;
    location.store = std::make_shared<WatchedStore>(std::move(location.store), common);
    return location;
}

}  // namespace wisp::cli
