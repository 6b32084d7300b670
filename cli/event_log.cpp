#include "event_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "diagnostics.hpp"
#include "output.hpp"

namespace wisp::cli {
namespace {

Error log_error(const std::string& path, int code) {
    const auto kind = code == ENOSPC || code == EDQUOT  ? ErrorKind::kNoSpace
                      : code == EACCES || code == EPERM ? ErrorKind::kDenied
                                                        : ErrorKind::kInvalid;
    return {kind, fmt::format("cannot write the log '{}': {}", printable(path),
                              std::generic_category().message(code))};
}

}  // namespace

EventLog::EventLog(EventLog&& other) noexcept
    : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}

EventLog& EventLog::operator=(EventLog&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(path_, other.path_);
    return *this;
}

EventLog::~EventLog() {
    if (file_ >= 0) ::close(file_);
}

Result<EventLog> EventLog::open(const std::string& path) {
    const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return std::unexpected(log_error(path, errno));
    return EventLog(file, path);
}

Result<void> EventLog::write(const nlohmann::ordered_json& event) {
    nlohmann::ordered_json line = {{"time", log_time()}};
    line.update(event);
    const std::string text =
        line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    const ssize_t written = ::write(file_, text.data(), text.size());
    if (written == static_cast<ssize_t>(text.size())) return {};
    return std::unexpected(log_error(path_, written < 0 ? errno : ENOSPC));
}

}  // namespace wisp::cli
