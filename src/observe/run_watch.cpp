#include "wisp/run_status.hpp"

#include <fmt/format.h>

#include "base/text.hpp"
#include "base/try.hpp"
#include "log/lineage.hpp"
#include "log/run_presence.hpp"
#include "observe/commit_summary.hpp"
#include "wisp/control.hpp"

namespace wisp {

struct RunWatch::State {
    CommitLog log;
    RunPresence presence{log};
    std::optional<LogEntry> head;
    std::stop_token stop;

    State(CommitLog opened, std::stop_token asked)
        : log(std::move(opened)), stop(std::move(asked)) {}

    /// While the next slot is empty, the head is what it was.
    Result<void> look() {
        if (!head) {
            WISP_ASSIGN(head, log.head());
            return {};
        }
        WISP_ASSIGN(const Slot next, log.next(head->commit.seq));
        if (next.kind == Slot::Kind::kAbsent) return presence.check();
        WISP_ASSIGN(auto newer, log.head(head->commit.seq));
        if (newer && newer->commit.seq > head->commit.seq) head = std::move(newer);
        return {};
    }
};

RunWatch::RunWatch(std::unique_ptr<State> state) : state_(std::move(state)) {}
RunWatch::RunWatch(RunWatch&&) noexcept = default;
RunWatch& RunWatch::operator=(RunWatch&&) noexcept = default;
RunWatch::~RunWatch() = default;

Result<RunWatch> RunWatch::open(const Location& where, const RunOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(CommitLog log, CommitLog::open(where, options));
    return RunWatch(std::make_unique<State>(std::move(log), options.stop));
}

const std::string& RunWatch::run() const {
    return state_->log.run();
}

Result<std::optional<CommitSummary>> RunWatch::newest(std::optional<std::uint64_t> until) {
    const StopScope scope(state_->stop);
    WISP_TRY(state_->look());
    const auto& head = state_->head;
    if (!head || head->commit.state.seq == 0) return std::nullopt;
    if (!until || head->commit.state.step <= *until) return summary_of(*head);
    const CommitLog& log = state_->log;
    Lineage history(log, *head);
    for (LogEntry at = *head;;) {
        WISP_ASSIGN(auto before, history.before(at));
        if (!before || before->commit.state.seq == 0) break;
        if (before->commit.state.step <= *until) return summary_of(*before);
        at = std::move(*before);
    }
    return fail(ErrorKind::kGap,
                fmt::format("the log of {} does not reach back to step {}; ask for a newer one",
                            shown(log.where().url), *until));
}

}  // namespace wisp
