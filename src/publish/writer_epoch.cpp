// Who owns a run: epochs and fences.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "log/slot_races.hpp"
#include "log/strict_json.hpp"
#include "publish/run_writer.hpp"

namespace wisp {

// Who this is as a writer lies beside the baseline, so that one process per step is one writer. The
// name is kept before it is used and stands in every commit: a commit whose answer was lost, to a
// process that may have died since, is known again. The epoch tells a writer that was fenced from
// one that never wrote; losing it costs a fence at the next start, nothing else.
Result<void> RunWriter::recall_owner() {
    const auto mapped = MappedFile::open(folder_ / "writer.json");
    if (!mapped && mapped.error().kind != ErrorKind::kNotFound) {
        return std::unexpected(mapped.error());
    }
    if (const auto json = parse_strict_json(mapped ? as_text(mapped->bytes()) : ""); json) {
        std::string problem;
        FieldReader in(*json, problem);
        const std::string run = in.text("run");
        const std::string owner = in.hex("owner", 32);
        const std::uint64_t epoch = in.number("epoch");
        if (problem.empty() && run == log_.run()) {
            owner_ = owner;
            epoch_ = epoch;
            return {};
        }
    }
    owner_ = log_.random_hex(16);
    // Under a name that is not kept, it would be fenced by itself after the next start.
    return keep_owner();
}

Result<void> RunWriter::keep_owner() const {
    const nlohmann::json json = {{"run", log_.run()}, {"owner", owner_}, {"epoch", epoch_}};
    WISP_ASSIGN(auto file, PendingFile::create(folder_ / "writer.json"));
    WISP_TRY(file.append(as_bytes(json.dump())));
    return file.commit();
}

Result<void> RunWriter::accept_epoch(const LogEntry& head) {
    if (head.commit.epoch <= epoch_) return {};
    if (head.commit.owner != owner_) return std::unexpected(fenced(head));
    // A rewind of ours whose answer was lost.
    epoch_ = head.commit.epoch;
    (void)keep_owner();
    return {};
}

Error RunWriter::fenced(const LogEntry& by) const {
    return Error{
        ErrorKind::kFenced,
        fmt::format("{} was taken over by {} with epoch {} (this writer has {}); stop, or "
                    "take it back",
                    shown(log_.where().url), shown(by.commit.writer), by.commit.epoch, epoch_)};
}

Result<void> RunWriter::begin_epoch() {
    WISP_ASSIGN(head_, log_.head_for(options_.signer, options_.take_over));
    WISP_TRY(recall_owner());
    if (head_ && head_->commit.owner == owner_) {
        WISP_TRY(accept_epoch(*head_));
        if (log_.counts(*head_)) return {};
        // The certificate it was signed under has ended: the renewed one vouches for it again.
        return heartbeat();
    }
    if (head_ && epoch_ != 0 && epoch_ < head_->commit.epoch && !options_.take_over) {
        return std::unexpected(fenced(*head_));
    }
    for (int race = 0; race < kSlotRaces; ++race) {
        // An empty run is fenced too: two that start it together must not share an epoch.
        epoch_ = head_ ? head_->commit.epoch + 1 : 1;
        const auto fence = [&](std::uint64_t) { return draft(CommitKind::kFence); };
        WISP_ASSIGN(auto appended, log_.append(fence, head_, options_.signer));
        head_ = std::move(appended.entry);
        if (!appended.won) continue;
        (void)keep_owner();
        return {};
    }
    return std::unexpected(lost_slot_races(log_.where()));
}

}  // namespace wisp
