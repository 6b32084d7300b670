// A replica under observation: after every call its weights must be a committed state, bit for bit,
// and its record must never go back. Its owner may be killed on either side of each call.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/ledger.hpp"
#include "sim/scheduler.hpp"
#include "wisp/replica.hpp"

namespace wisp::sim {

/// The furthest a replica is known to have durably been.
struct HighWater {
    std::uint64_t epoch = 0;
    std::uint64_t seq = 0;
    std::uint64_t state_seq = 0;
    bool bounded = false;     // told to stop at a step
    bool lost_state = false;  // and must take one anew: with a bound, an older one
};

struct Observer {
    Scheduler* scheduler = nullptr;
    const Ledger* ledger = nullptr;
    const StateBank* bank = nullptr;
    std::string prefix;  // of the run it follows
    std::function<void(std::string)> blame;
    std::function<void(std::string)> tell;
};

class WatchedReplica : public Replica {
  public:
    WatchedReplica(std::unique_ptr<Replica> inner, Actor& actor, Observer observer, HighWater& mark)
        : inner_(std::move(inner)), actor_(actor), observer_(std::move(observer)), mark_(mark) {}

    std::string label() const override { return inner_->label(); }
    const Weights* weights() const override { return inner_->weights(); }
    bool in_doubt() const override { return inner_->in_doubt(); }
    Result<std::optional<ReplicaRecord>> load() override;
    Result<void> save(const ReplicaRecord& record) override;
    Result<ApplyReport> apply(const std::vector<std::filesystem::path>& deltas,
                              const ReplicaRecord& after) override;
    Result<void> overwrite(std::span<const MovedBlock> changes,
                           const ReplicaRecord& after) override;
    Result<void> adopt(const std::filesystem::path& folder, const ReplicaRecord& after) override;
    Result<void> discard() override;
    std::filesystem::path scratch() const override { return inner_->scratch(); }

    const std::optional<ReplicaRecord>& record() const { return record_; }

  private:
    template <class Call>
    auto watched(std::string_view what, Call call);
    void check(std::string_view what);

    std::unique_ptr<Replica> inner_;
    Actor& actor_;
    Observer observer_;
    HighWater& mark_;
    std::optional<ReplicaRecord> record_;
};

}  // namespace wisp::sim
