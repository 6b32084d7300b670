#include <fmt/format.h>

#include "base/pending_folder.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "follow/object_fetcher.hpp"
#include "log/lineage.hpp"
#include "wisp/inspect.hpp"
#include "wisp/run.hpp"
#include "wisp/stop.hpp"

namespace wisp {

Result<FileReport> inspect_commit(const Location& where, std::uint64_t seq,
                                  const RunOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    WISP_ASSIGN(Lineage history, Lineage::of_newest(log));
    WISP_ASSIGN(const LogEntry entry, history.at(seq));
    if (!entry.commit.delta) {
        return fail(ErrorKind::kNotFound,
                    fmt::format("commit {} of {} has no delta", seq, shown(where.url)));
    }
    WISP_ASSIGN(const PendingFolder folder, PendingFolder::temporary({}));
    ObjectFetcher fetcher(where, folder.path(), 1);
    WISP_ASSIGN(const auto path, fetcher.fetch(*entry.commit.delta));
    return inspect(path);
}

}  // namespace wisp
