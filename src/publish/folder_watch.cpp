#include "wisp/step_folders.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <system_error>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMostFiles = 100'000;

/// Changes whenever a file comes, goes, grows or is written to.
std::string content_of(const fs::path& folder) {
    std::vector<std::string> lines;
    std::error_code error;
    fs::recursive_directory_iterator at(folder, error);
    for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
        struct stat found = {};
        if (::stat(at->path().c_str(), &found) != 0 || lines.size() >= kMostFiles) continue;
        lines.push_back(fmt::format("{} {} {}.{}", at->path().string(), found.st_size,
                                    found.st_mtim.tv_sec, found.st_mtim.tv_nsec));
    }
    std::ranges::sort(lines);
    return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace

Result<std::map<std::uint64_t, fs::path>> FolderWatch::list() const {
    std::map<std::uint64_t, fs::path> found;
    std::error_code error;
    for (const auto& item : fs::directory_iterator(where_.root(), error)) {
        const auto step = where_.step_of(item.path().filename().string());
        std::error_code unread;
        if (!step || !item.is_directory(unread)) continue;
        const auto [there, fresh] = found.emplace(*step, item.path());
        if (fresh) continue;
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} and {} are both of step {}; say which are meant, as in "
                                "--watch '{}/step_{{step}}'",
                                shown(there->second.string()), shown(item.path().string()), *step,
                                where_.root().string()));
    }
    if (error) return std::unexpected(file_error("watch", where_.root(), error.value()));
    return found;
}

FolderWatch::Seen& FolderWatch::see(const fs::path& folder) {
    Seen& seen = seen_[folder.string()];
    std::string content = content_of(folder);
    if (seen.since_ms == 0 || content != seen.content) {
        seen = {std::move(content), options_.clock->now_ms(), false, false};
    }
    return seen;
}

fs::path FolderWatch::weights_in(const fs::path& folder) const {
    return where_.below().empty() ? folder : folder / where_.below();
}

bool FolderWatch::is_marked(const fs::path& folder) const {
    std::error_code error;
    return fs::exists(folder / options_.ready, error) ||
           fs::exists(folder / where_.below() / options_.ready, error);
}

bool FolderWatch::is_quiet(const Seen& seen) const {
    return options_.clock->now_ms() - seen.since_ms >= options_.quiet.count();
}

Result<FolderLook> FolderWatch::look(std::optional<std::uint64_t> past) {
    WISP_ASSIGN(const auto folders, list());
    std::erase_if(seen_, [](const auto& item) {
        std::error_code error;
        return !fs::exists(item.first, error);
    });
    FolderLook look;
    std::vector<std::pair<StepFolder, Seen*>> stale;  // not complete, and nothing happens in them
    for (const auto& [step, folder] : folders) {
        if (past && step <= *past) continue;
        Seen& seen = see(folder);
        if (seen.given_up) continue;
        const StepFolder here{step, weights_in(folder)};
        const bool quiet = is_quiet(seen);
        const bool ready = options_.ready.empty() ? quiet : is_marked(folder);
        if (ready) {
            for (auto& [left, of] : stale) {
                if (!std::exchange(of->told, true)) look.passed_over.push_back(std::move(left));
            }
            stale.clear();
            look.ready.push_back(here);
            continue;
        }
        if (!quiet) {
            look.unfinished = here;
            break;
        }
        stale.emplace_back(here, &seen);
    }
    return look;
}

void FolderWatch::give_up(const StepFolder& folder) {
    for (auto& [path, seen] : seen_) {
        if (weights_in(path) == folder.folder) seen.given_up = true;
    }
}

}  // namespace wisp
