#include "lent_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "wisp/result.hpp"

namespace wisp::python {
namespace {

Error trouble(const std::string& path, int number) {
    const bool full = number == ENOSPC || number == EDQUOT;
    return {full ? ErrorKind::kNoSpace : ErrorKind::kInvalid,
            fmt::format("cannot write {}: {}; TMPDIR names another folder for temporary files",
                        printable(path), std::strerror(number))};
}

}  // namespace

Result<LentFile> LentFile::holding(std::span<const std::byte> bytes) {
    std::error_code failure;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(failure);
    std::string path = (failure ? std::filesystem::path("/tmp") : folder) / "wisp-put-XXXXXX";
    const int descriptor = ::mkstemp(path.data());
    if (descriptor < 0) return std::unexpected(trouble(path, errno));
    LentFile file(std::move(path));
    int problem = 0;
    while (!bytes.empty() && problem == 0) {
        const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
        if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
        if (count < 0 && errno != EINTR) problem = errno;
    }
    if (::close(descriptor) != 0 && problem == 0) problem = errno;
    if (problem != 0) return std::unexpected(trouble(file.path_, problem));
    return file;
}

LentFile::~LentFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
}

}  // namespace wisp::python
