#include "revocable_replica.hpp"

#include "wisp/control.hpp"

namespace wisp::python {

void RevocableReplica::take_away() {
    const std::scoped_lock lock(changing_);
    taken_ = true;
}

void RevocableReplica::give_back() {
    const std::scoped_lock lock(changing_);
    taken_ = false;
}

template <class Change>
auto RevocableReplica::unless_taken(Change change) -> decltype(change()) {
    const std::scoped_lock lock(changing_);
    if (taken_ || stopped()) return fail(ErrorKind::kUnavailable, "stopped as asked");
    return change();
}

Result<std::optional<ReplicaRecord>> RevocableReplica::load() {
    return unless_taken([&] { return inner_->load(); });
}

Result<void> RevocableReplica::save(const ReplicaRecord& record) {
    return unless_taken([&] { return inner_->save(record); });
}

Result<ApplyReport> RevocableReplica::apply(const std::vector<std::filesystem::path>& deltas,
                                            const ReplicaRecord& after) {
    return unless_taken([&] { return inner_->apply(deltas, after); });
}

Result<void> RevocableReplica::overwrite(std::span<const MovedBlock> changes,
                                         const ReplicaRecord& after) {
    return unless_taken([&] { return inner_->overwrite(changes, after); });
}

Result<void> RevocableReplica::adopt(const std::filesystem::path& folder,
                                     const ReplicaRecord& after) {
    return unless_taken([&] { return inner_->adopt(folder, after); });
}

Result<void> RevocableReplica::discard() {
    return unless_taken([&] { return inner_->discard(); });
}

Result<void> RevocableReplica::step_back() {
    return unless_taken([&] { return inner_->step_back(); });
}

}  // namespace wisp::python
