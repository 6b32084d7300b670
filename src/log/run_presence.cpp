#include "log/run_presence.hpp"

#include <fmt/format.h>

#include "base/text.hpp"
#include "log/run_keys.hpp"

namespace wisp {

Result<void> RunPresence::check(Milliseconds believed) {
    const Location& where = log_->where();
    const std::int64_t now = log_->clock().now_ms();
    if (now >= seen_ms_ && now - seen_ms_ < believed.count()) return {};
    const auto found = where.store->head(where.key(kRunKey));
    if (found) {
        seen_ms_ = now;
        return {};
    }
    if (found.error().kind != ErrorKind::kNotFound) return std::unexpected(found.error());
    return fail(ErrorKind::kNoRun,
                fmt::format("the run at {} is gone: its {} was deleted; restore the run, or follow "
                            "another one",
                            shown(where.url), kRunKey));
}

}  // namespace wisp
