#include "base/try.hpp"
#include "observe/fetched_delta.hpp"
#include "wisp/control.hpp"
#include "wisp/inspect.hpp"

namespace wisp {

Result<FileReport> inspect_commit(const Location& where, std::uint64_t seq,
                                  const RunOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const FetchedDelta delta, fetch_delta_of(where, seq, options));
    return inspect(delta.path);
}

}  // namespace wisp
