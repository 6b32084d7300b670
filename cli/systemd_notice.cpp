#include "systemd_notice.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "wisp/result.hpp"

namespace wisp::cli {
namespace {

constexpr std::size_t kLongestStatus = 300;

void send_lines(const std::string& lines) {
    const char* const named = std::getenv("NOTIFY_SOCKET");
    const std::string path = named != nullptr ? named : "";
    sockaddr_un address{};
    if (path.size() < 2 || path.size() >= sizeof(address.sun_path)) return;
    if (path.front() != '/' && path.front() != '@') return;
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    // A name that begins with '@' lies in no folder: its first byte on the wire is 0.
    if (path.front() == '@') address.sun_path[0] = '\0';
    const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return;
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    // Never waits: a manager that does not read must not keep a replica from its next step.
    (void)::sendto(socket, lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                   reinterpret_cast<const sockaddr*>(&address), length);
    ::close(socket);
}

}  // namespace

void ServiceNotice::tell(std::string_view status) {
    std::string lines = "STATUS=" + printable(status.substr(0, kLongestStatus));
    if (!std::exchange(ready_, true)) lines += "\nREADY=1";
    send_lines(lines);
}

}  // namespace wisp::cli
