#include "listening.hpp"

#include <fmt/format.h>
#include <httplib.h>

#include <sys/socket.h>

#include <cerrno>

namespace wisp::cli {

Result<int> listen_alone(httplib::Server& server, const std::string& host, int port) {
    // The library's own choice, SO_REUSEPORT, lets several programs listen, and clients meet
    // either.
    server.set_socket_options([](socket_t handle) {
        const int yes = 1;
        ::setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    errno = 0;
    const int bound = port == 0                         ? server.bind_to_any_port(host)
                      : server.bind_to_port(host, port) ? port
                                                        : -1;
    if (bound >= 0) return bound;
    const char* why = errno == EADDRINUSE ? "another program listens there"
                      : errno == EACCES   ? "only root may"
                                          : "is it an address of this machine?";
    return fail(ErrorKind::kConflict,
                fmt::format("cannot listen on {} port {}: {}", host, port, why));
}

}  // namespace wisp::cli
