// The store as one actor sees it: each operation hands over to the others first, may meet a fault,
// may be the actor's last, and is told to the ledger and the trace when it really happens.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "doubles/fault_store.hpp"
#include "sim/ledger.hpp"
#include "sim/scheduler.hpp"

namespace wisp::sim {

/// What happened last, for understanding a failure.
class Trace {
  public:
    void add(const std::string& actor, std::string what);
    void print() const;
    void show_all() { live_ = true; }
    std::uint64_t counted() const { return counted_; }
    /// Told apart by this in a replay: the same seed gives the same number.
    std::uint64_t fingerprint() const { return fingerprint_; }

  private:
    std::deque<std::string> lines_;
    std::uint64_t counted_ = 0;
    std::uint64_t fingerprint_ = 14695981039346656037U;
    bool live_ = false;
};

/// The true store with the ledger looking on. `author` is whose write it is.
class TrueStore : public MemoryStore {
  public:
    TrueStore(std::shared_ptr<Clock> clock, const StateBank& bank)
        : MemoryStore(std::move(clock)), ledger_(*this, bank) {}

    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override;
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override;
    Result<void> remove(const std::string& key) override;

    /// Gone without anybody of the run having asked for it, and back as it was.
    Bytes lose(const std::string& key);
    void bring_back(const std::string& key, const Bytes& bytes);

    Ledger& ledger() { return ledger_; }
    std::string author;

  private:
    std::optional<Bytes> current(const std::string& key);
    Ledger ledger_;
};

/// The true store under one actor's name. Other actors run while a slow call waits, so the name is
/// given with each write.
class NamedStore : public Store {
  public:
    NamedStore(std::shared_ptr<TrueStore> truth, std::shared_ptr<std::string> author)
        : truth_(std::move(truth)), author_(std::move(author)) {}
    std::string label() const override { return truth_->label(); }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override {
        return named().put(key, bytes);
    }
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override {
        return named().create(key, bytes);
    }
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override {
        return truth_->read(key, offset, into);
    }
    Result<ObjectInfo> head(const std::string& key) override { return truth_->head(key); }
    Result<void> remove(const std::string& key) override { return named().remove(key); }
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override {
        return truth_->list(prefix, after, limit);
    }
    Result<std::int64_t> now_ms() override { return truth_->now_ms(); }

  private:
    TrueStore& named() {
        truth_->author = *author_;
        return *truth_;
    }
    std::shared_ptr<TrueStore> truth_;
    std::shared_ptr<std::string> author_;
};

/// Writes that were sent and not yet done: they arrive after their sender gave up, or died.
class LateWrites {
  public:
    void send(std::uint64_t due_step, std::int64_t now_ms, std::function<void()> write);
    void arrive(std::uint64_t step);
    /// When the oldest of them was sent; nothing when none is under way.
    std::optional<std::int64_t> oldest_ms() const;

  private:
    struct Sent {
        std::int64_t at_ms = 0;
        std::function<void()> write;
    };
    std::multimap<std::uint64_t, Sent> waiting_;
};

struct SimStoreParts {
    std::shared_ptr<TrueStore> truth;
    std::shared_ptr<std::string> author;  // whose writes these are in the ledger
    std::shared_ptr<FaultStore> faulty;   // over `truth`, by that name
    Scheduler* scheduler = nullptr;
    Trace* trace = nullptr;
    LateWrites* late = nullptr;
    double late_chance = 0;
    bool late_removes = false;
};

class SimStore : public Store {
  public:
    SimStore(SimStoreParts parts, Actor& actor, std::uint64_t seed)
        : parts_(std::move(parts)), actor_(actor), random_(seed) {}

    std::string label() const override { return "the bucket"; }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override;
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override;
    Result<ObjectInfo> head(const std::string& key) override;
    Result<void> remove(const std::string& key) override;
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override;
    Result<std::int64_t> now_ms() override;
    bool creates_exclusively() const override { return parts_.faulty->creates_exclusively(); }

    void heal() {
        parts_.late_chance = 0;
        requests_ = 0;
    }
    /// Since the store was healed.
    std::uint64_t requests() const { return requests_; }
    const Actor& actor() const { return actor_; }
    const std::string& author() const { return *parts_.author; }
    void rename(std::string author) { *parts_.author = std::move(author); }
    /// What else its owner does while a request is under way.
    std::function<void()> during_request;

  private:
    template <class Call>
    auto step(StoreOperation operation, const std::string& key, Call call,
              std::function<void()> late = {});
    SimStoreParts parts_;
    Actor& actor_;
    Random random_;
    std::uint64_t requests_ = 0;
};

}  // namespace wisp::sim
