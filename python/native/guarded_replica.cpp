#include "guarded_replica.hpp"

#include "wisp/control.hpp"

namespace wisp::python {

void GuardedReplica::take_away() {
    const std::scoped_lock lock(changing_);
    taken_ = true;
}

void GuardedReplica::give_back() {
    const std::scoped_lock lock(changing_);
    taken_ = false;
}

template <class Change>
auto GuardedReplica::unless_taken(Change change) -> decltype(change()) {
    const std::scoped_lock lock(changing_);
    if (taken_ || stopped()) return fail(ErrorKind::kUnavailable, "stopped as asked");
    return change();
}

Result<std::optional<ReplicaRecord>> GuardedReplica::load() {
    return unless_taken([&] { return inner_->load(); });
}

Result<void> GuardedReplica::save(const ReplicaRecord& record) {
    return unless_taken([&] { return inner_->save(record); });
}

Result<ApplyReport> GuardedReplica::apply(const std::vector<std::filesystem::path>& deltas,
                                          const ReplicaRecord& after) {
    return unless_taken([&] { return inner_->apply(deltas, after); });
}

Result<void> GuardedReplica::overwrite(std::span<const MovedBlock> changes,
                                       const ReplicaRecord& after) {
    return unless_taken([&] { return inner_->overwrite(changes, after); });
}

Result<void> GuardedReplica::adopt(const std::filesystem::path& folder,
                                   const ReplicaRecord& after) {
    return unless_taken([&] { return inner_->adopt(folder, after); });
}

Result<void> GuardedReplica::discard() {
    return unless_taken([&] { return inner_->discard(); });
}

Result<void> GuardedReplica::step_back() {
    return unless_taken([&] { return inner_->step_back(); });
}

}  // namespace wisp::python
