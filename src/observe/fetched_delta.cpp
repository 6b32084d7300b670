#include "observe/fetched_delta.hpp"

#include <fmt/format.h>

#include "base/text.hpp"
#include "base/try.hpp"
#include "follow/object_fetcher.hpp"
#include "log/lineage.hpp"

namespace wisp {
namespace {

constexpr unsigned kParallelFetches = 4;

}  // namespace

Result<FetchedDelta> fetch_delta_of(const Location& where, std::uint64_t seq,
                                    const RunOptions& options) {
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    WISP_ASSIGN(Lineage history, Lineage::of_newest(log));
    WISP_ASSIGN(const LogEntry entry, history.at(seq));
    if (!entry.commit.delta) {
        return fail(ErrorKind::kNotFound,
                    fmt::format("commit {} of {} has no delta", seq, shown(where.url)));
    }
    WISP_ASSIGN(PendingFolder folder, PendingFolder::temporary({}));
    ObjectFetcher fetcher(where, folder.path(), kParallelFetches);
    WISP_ASSIGN(auto path, fetcher.fetch_surely(*entry.commit.delta));
    return FetchedDelta{std::move(folder), std::move(path)};
}

}  // namespace wisp
