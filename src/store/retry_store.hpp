// Asks a store again when it was unavailable, with pauses that grow and differ between callers.
//
// Only kUnavailable is retried, a bounded number of times within a bounded time, never when
// the work is to end (wisp/control.hpp), and not before the time a server asked for. Thread-safe.
// A create() whose reply was lost may have happened. If a later try says "already there", the
// object is read back: the caller's own bytes mean it was the winner. So the bytes given to
// create() must be the caller's alone, by a nonce in them.
#pragma once

#include <memory>
#include <mutex>

#include "base/random.hpp"
#include "wisp/control.hpp"
#include "wisp/store.hpp"

namespace wisp {

struct RetryPlan {
    unsigned tries = 8;
    Milliseconds shortest_pause{50};
    Milliseconds longest_pause{8'000};
    Milliseconds total{60'000};  // no new try is begun later than this after the first
};

class RetryStore : public Store {
  public:
    explicit RetryStore(std::shared_ptr<Store> inner, RetryPlan plan = {},
                        std::shared_ptr<Clock> clock = system_clock(),
                        std::uint64_t seed = fresh_seed())
        : inner_(std::move(inner)), plan_(plan), clock_(std::move(clock)), random_(seed) {}

    std::string label() const override { return inner_->label(); }
    std::string bucket() const override { return inner_->bucket(); }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override;
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override;
    Result<ObjectInfo> head(const std::string& key) override;
    Result<void> remove(const std::string& key) override;
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override;
    Result<std::int64_t> now_ms() override;
    bool creates_exclusively() const override { return inner_->creates_exclusively(); }
    StoreTerms terms() const override { return inner_->terms(); }

  private:
    struct Patience {
        std::int64_t started_ms = 0;
        unsigned tried = 0;
        Milliseconds last_pause{0};
    };
    template <class Call>
    auto persist(Call call);
    /// False when it is time to give up; else the pause lies behind us.
    bool pause_after(const Error& error, Patience& patience);
    Result<Created> resolve_doubt(const std::string& key, std::span<const std::byte> bytes);

    std::shared_ptr<Store> inner_;
    RetryPlan plan_;
    std::shared_ptr<Clock> clock_;
    std::mutex mutex_;
    Random random_;
};

}  // namespace wisp
