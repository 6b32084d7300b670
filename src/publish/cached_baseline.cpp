#include "wisp/publisher.hpp"

#include <cstdlib>

namespace wisp {

namespace fs = std::filesystem;

Result<fs::path> cached_baseline(const std::string& run_id) {
    const char* const cache = std::getenv("XDG_CACHE_HOME");
    const char* const home = std::getenv("HOME");
    fs::path root;
    if (cache != nullptr && *cache == '/') {
        root = cache;
    } else if (home != nullptr && *home == '/') {
        root = fs::path(home) / ".cache";
    } else {
        return fail(ErrorKind::kInvalid,
                    "there is no place for the baseline, since neither XDG_CACHE_HOME nor HOME is "
                    "set; name a folder for it");
    }
    // Each run has its own: two runs published from one machine must not share a baseline.
    return root / "wisp" / "baselines" / run_id;
}

}  // namespace wisp
