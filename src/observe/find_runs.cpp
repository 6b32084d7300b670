#include "base/try.hpp"
#include "log/run_keys.hpp"
#include "wisp/control.hpp"
#include "wisp/run_status.hpp"

namespace wisp {
namespace {

constexpr std::size_t kMostRuns = 1'000;
// The character after '/': a key that begins so comes after all that lie in the folder.
constexpr char kAfterSlash = '/' + 1;

}  // namespace

Result<std::vector<std::string>> find_runs(const Location& under, const RunOptions& options) {
    const StopScope scope(options.stop);
    const std::string prefix = under.prefix.empty() ? "" : under.prefix + "/";
    std::vector<std::string> names;
    // One object of each folder is enough to learn its name, then the listing goes on behind it: a
    // run may hold a million objects.
    for (std::string after; names.size() < kMostRuns;) {
        WISP_ASSIGN(const auto page, under.store->list(prefix, after, 1));
        if (page.empty()) break;
        const std::string& key = page.front().key;
        const auto slash = key.find('/', prefix.size());
        if (slash == std::string::npos) {
            after = key;
            continue;
        }
        const std::string name = key.substr(prefix.size(), slash - prefix.size());
        after = prefix + name + kAfterSlash;
        const auto record = under.store->head(prefix + name + "/" + std::string(kRunKey));
        if (record) {
            names.push_back(name);
        } else if (record.error().kind != ErrorKind::kNotFound) {
            return std::unexpected(record.error());
        }
    }
    return names;
}

}  // namespace wisp
