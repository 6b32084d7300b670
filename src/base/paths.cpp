#include "base/paths.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;

Result<void> refuse_overwriting(const fs::path& output, const std::vector<fs::path>& inputs) {
    for (const fs::path& input : inputs) {
        std::error_code error;
        if (!fs::equivalent(output, input, error)) continue;
        return fail(
            ErrorKind::kInvalid,
            fmt::format("{} is one of the inputs; choose another output", shown(output.string())));
    }
    return {};
}

Result<void> copy_tree(const fs::path& from, const fs::path& to) {
    std::error_code error;
    if (fs::is_directory(from, error)) {
        if (!fs::create_directory(to, error) && error) {
            return std::unexpected(file_error("create", to, error.value()));
        }
        for (const auto& item : fs::directory_iterator(from, error)) {
            WISP_TRY(copy_tree(item.path(), to / item.path().filename()));
        }
        if (error) return std::unexpected(file_error("list", from, error.value()));
        return {};
    }
    if (!fs::is_regular_file(from, error)) return {};
    // std::filesystem reports a full disk as an input/output error.
    WISP_ASSIGN(const MappedFile source, MappedFile::open(from));
    const FileHandle target(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (target.get() < 0) return std::unexpected(file_error("create", to, errno));
    WISP_TRY(write_at(target, 0, source.bytes(), to));
    return sync_file(target, to);
}

}  // namespace wisp
