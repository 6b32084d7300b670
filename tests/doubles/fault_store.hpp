// A store that misbehaves as planned, for tests and simulations. Thread-safe.
//
// Deterministic from the seed of its policy as long as calls come in one order. Stale answers need
// an ObjectHistory; fault stores over one inner store share it.
#pragma once

#include <atomic>
#include <memory>

#include "doubles/fault_plan.hpp"
#include "doubles/object_history.hpp"
#include "wisp/control.hpp"
#include "wisp/store.hpp"

namespace wisp {

class FaultStore : public Store {
  public:
    /// Faults of `plan` from `seed`, with a history of its own.
    FaultStore(std::shared_ptr<Store> inner, const FaultPlan& plan, std::uint64_t seed,
               std::shared_ptr<Clock> clock = system_clock());
    /// Faults as `policy` decides; the plan gives their sizes and the way of create().
    FaultStore(std::shared_ptr<Store> inner, const FaultPlan& plan,
               std::shared_ptr<FaultPolicy> policy, std::shared_ptr<ObjectHistory> history,
               std::shared_ptr<Clock> clock);

    /// From now on all is well; what was lost stays lost.
    void heal() { healed_ = true; }
    std::uint64_t faults() const { return faults_; }

    std::string label() const override { return inner_->label() + " with faults"; }
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
    bool creates_exclusively() const override { return plan_.creation == Creation::kExclusive; }
    StoreTerms terms() const override { return inner_->terms(); }

  private:
    Trouble meet(StoreOperation operation, const std::string& key);
    /// Runs the call between what goes wrong before and after it.
    template <class Call>
    auto troubled(StoreOperation operation, const std::string& key, Call call);
    Result<Created> create_loosely(const std::string& key, std::span<const std::byte> bytes);
    std::optional<ObjectHistory::Answer> past(const std::string& key, const Trouble& trouble);
    std::uint64_t lag_of(const Trouble& trouble) const;

    std::shared_ptr<Store> inner_;
    FaultPlan plan_;
    std::shared_ptr<FaultPolicy> policy_;
    std::shared_ptr<ObjectHistory> history_;
    std::shared_ptr<Clock> clock_;
    std::atomic<bool> healed_ = false;
    std::atomic<std::uint64_t> faults_ = 0;
};

}  // namespace wisp
