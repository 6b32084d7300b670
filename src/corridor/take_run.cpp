// Who owns a run: epochs and fences.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "corridor/publish_desk.hpp"
#include "format/strict_json.hpp"

namespace wisp {
namespace {

constexpr int kRaces = 100;

}  // namespace

// The epoch a baseline last wrote with lies beside it: one process per step is one writer.
std::optional<std::uint64_t> PublishDesk::remembered_epoch() const {
    const auto mapped = MappedFile::open(baseline_.scratch() / "writer.json");
    if (!mapped) return std::nullopt;
    const auto json = parse_strict_json(as_text(mapped->bytes()));
    if (!json) return std::nullopt;
    std::string problem;
    FieldReader in(*json, problem);
    const std::string run = in.text("run");
    const std::uint64_t epoch = in.number("epoch");
    if (!problem.empty() || run != log_.run()) return std::nullopt;
    return epoch;
}

void PublishDesk::remember_epoch() const {
    const nlohmann::json json = {{"run", log_.run()}, {"epoch", epoch_}};
    auto file = PendingFile::create(baseline_.scratch() / "writer.json");
    // Forgetting it costs a fence at the next start, nothing else.
    if (file && file->append(as_bytes(json.dump()))) (void)file->commit();
}

Error PublishDesk::fenced(const LogEntry& by) const {
    return Error{
        ErrorKind::kFenced,
        fmt::format("{} was taken over by {} with epoch {} (this writer has {}); stop, or "
                    "take it back with --take-over",
                    shown(log_.where().url), shown(by.commit.writer), by.commit.epoch, epoch_)};
}

Result<void> PublishDesk::take_run() {
    WISP_ASSIGN(head_, log_.head());
    const auto remembered = remembered_epoch();
    if (head_ && remembered && *remembered == head_->commit.epoch) {
        epoch_ = *remembered;
        return {};
    }
    if (head_ && remembered && *remembered < head_->commit.epoch && !options_.take_over) {
        epoch_ = *remembered;
        return std::unexpected(fenced(*head_));
    }
    for (int race = 0; race < kRaces; ++race) {
        // An empty run is fenced too: two that start it together must not share an epoch.
        epoch_ = head_ ? head_->commit.epoch + 1 : 1;
        WISP_ASSIGN(auto appended, log_.append(draft(CommitKind::kFence), head_, options_.signer));
        head_ = std::move(appended.entry);
        if (!appended.won) continue;
        remember_epoch();
        return {};
    }
    return fail(ErrorKind::kConflict,
                fmt::format("others keep writing to {}; stop them first", shown(log_.where().url)));
}

}  // namespace wisp
