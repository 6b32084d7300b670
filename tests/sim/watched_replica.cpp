#include "sim/watched_replica.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace wisp::sim {

void WatchedReplica::check(std::string_view what) {
    if (!record_) return;
    const auto blame = [&](const std::string& problem) {
        observer_.blame(fmt::format("{} after {}: {}", actor_.name, what, problem));
    };
    const std::string problem = observer_.ledger->judge_position(observer_.prefix, *record_);
    if (!problem.empty()) blame(problem);
    const Weights* held = inner_->weights();
    if (held != nullptr && record_->state_seq != 0 &&
        !observer_.bank->holds(*held, record_->state)) {
        blame(fmt::format("its weights are not the state of commit {}", record_->state_seq));
    }
    if (record_->state_seq == 0) mark_.lost_state = true;
    if (mark_.lost_state && mark_.bounded) mark_.state_seq = 0;
    if (record_->state_seq != 0) mark_.lost_state = false;
    if (record_->seq < mark_.seq || record_->epoch < mark_.epoch ||
        (record_->state_seq != 0 && record_->state_seq < mark_.state_seq)) {
        blame(fmt::format("it went back from epoch {}, commit {}, state {} to {}, {}, {}",
                          mark_.epoch, mark_.seq, mark_.state_seq, record_->epoch, record_->seq,
                          record_->state_seq));
    }
    mark_.epoch = record_->epoch;
    mark_.seq = record_->seq;
    mark_.state_seq = std::max(mark_.state_seq, record_->state_seq);
}

template <class Call>
auto WatchedReplica::watched(std::string_view what, Call call) {
    observer_.scheduler->point(actor_, true);
    auto result = call();
    // A ghost's files are not what its successor will find.
    if (!actor_.dead) {
        observer_.tell(fmt::format("{}: {}, at {} state {}", what,
                                   result ? "done" : result.error().text,
                                   record_ ? record_->seq : 0, record_ ? record_->state_seq : 0));
        check(what);
    }
    observer_.scheduler->point(actor_, true);
    return result;
}

Result<std::optional<ReplicaRecord>> WatchedReplica::load() {
    return watched("load", [&] {
        auto loaded = inner_->load();
        if (loaded) record_ = *loaded;
        return loaded;
    });
}

Result<void> WatchedReplica::save(const ReplicaRecord& record) {
    return watched("save", [&] {
        auto saved = inner_->save(record);
        if (saved) record_ = record;
        return saved;
    });
}

Result<ApplyReport> WatchedReplica::apply(const std::vector<std::filesystem::path>& deltas,
                                          const ReplicaRecord& after) {
    return watched("apply", [&] {
        auto applied = inner_->apply(deltas, after);
        if (applied) record_ = after;
        return applied;
    });
}

Result<void> WatchedReplica::overwrite(std::span<const MovedBlock> changes,
                                       const ReplicaRecord& after) {
    return watched("overwrite", [&] {
        auto moved = inner_->overwrite(changes, after);
        if (moved) record_ = after;
        return moved;
    });
}

Result<void> WatchedReplica::adopt(const std::filesystem::path& folder,
                                   const ReplicaRecord& after) {
    return watched("adopt", [&] {
        auto adopted = inner_->adopt(folder, after);
        if (adopted) record_ = after;
        return adopted;
    });
}

Result<void> WatchedReplica::discard() {
    return watched("discard", [&] {
        auto discarded = inner_->discard();
        if (discarded && record_) forget_state(*record_);
        return discarded;
    });
}

}  // namespace wisp::sim
