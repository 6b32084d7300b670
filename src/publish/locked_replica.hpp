// A replica that takes a lock for each move, so that its owner can fetch without holding it.
#pragma once

#include <mutex>
#include <utility>

#include "wisp/replica.hpp"

namespace wisp {

class LockedReplica : public Replica {
  public:
    /// `moved` is set, under the lock, before the weights are touched.
    LockedReplica(Replica& inner, std::mutex& mutex, bool& moved)
        : inner_(inner), mutex_(mutex), moved_(moved) {}

    std::string label() const override { return inner_.label(); }
    const Weights* weights() const override { return inner_.weights(); }
    bool has_state() const override { return inner_.has_state(); }
    bool in_doubt() const override { return inner_.in_doubt(); }
    std::filesystem::path scratch() const override { return inner_.scratch(); }
    Result<std::optional<ReplicaRecord>> load() override {
        const std::lock_guard lock(mutex_);
        return inner_.load();
    }
    Result<void> save(const ReplicaRecord& record) override {
        const std::lock_guard lock(mutex_);
        return inner_.save(record);
    }
    Result<ApplyReport> apply(const std::vector<std::filesystem::path>& deltas,
                              const ReplicaRecord& after) override {
        return move([&] { return inner_.apply(deltas, after); });
    }
    Result<void> overwrite(std::span<const MovedBlock> changes,
                           const ReplicaRecord& after) override {
        return move([&] { return inner_.overwrite(changes, after); });
    }
    Result<void> adopt(const std::filesystem::path& folder, const ReplicaRecord& after) override {
        return move([&] { return inner_.adopt(folder, after); });
    }
    Result<void> discard() override {
        return move([&] { return inner_.discard(); });
    }
    Result<void> step_back() override {
        return move([&] { return inner_.step_back(); });
    }

  private:
    template <class Move>
    auto move(Move&& change) -> decltype(change()) {
        const std::lock_guard lock(mutex_);
        moved_ = true;
        return change();
    }

    Replica& inner_;
    std::mutex& mutex_;
    bool& moved_;
};

}  // namespace wisp
