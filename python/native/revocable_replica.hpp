// A replica that can be taken away from the thread that moves it.
//
// A store written in Python may hold a thread for as long as it likes. Such a thread is left
// behind: when it comes back it finds the replica closed to it, and changes nothing any more.
#pragma once

#include <memory>
#include <mutex>

#include "wisp/replica.hpp"

namespace wisp::python {

class RevocableReplica : public Replica {
  public:
    explicit RevocableReplica(std::unique_ptr<Replica> inner) : inner_(std::move(inner)) {}

    /// Waits for the change under way, and lets no other one begin. From any thread.
    void take_away();
    /// Once the thread that moved it has come back.
    void give_back();

    std::string label() const override { return inner_->label(); }
    const Weights* weights() const override { return inner_->weights(); }
    bool has_state() const override { return inner_->has_state(); }
    std::shared_ptr<const HeldSlices> held() const override { return inner_->held(); }
    std::shared_ptr<const HeldSlices> held_of(const Schema& coming) override {
        return inner_->held_of(coming);
    }
    bool in_doubt() const override { return inner_->in_doubt(); }
    std::filesystem::path scratch() const override { return inner_->scratch(); }
    Result<std::optional<ReplicaRecord>> load() override;
    Result<void> save(const ReplicaRecord& record) override;
    Result<ApplyReport> apply(const std::vector<std::filesystem::path>& deltas,
                              const ReplicaRecord& after) override;
    Result<void> overwrite(std::span<const MovedBlock> changes,
                           const ReplicaRecord& after) override;
    Result<void> adopt(const std::filesystem::path& folder, const ReplicaRecord& after) override;
    Result<void> discard() override;
    Result<void> step_back() override;

  private:
    template <class Change>
    auto unless_taken(Change change) -> decltype(change());

    std::unique_ptr<Replica> inner_;
    std::mutex changing_;
    bool taken_ = false;
};

}  // namespace wisp::python
