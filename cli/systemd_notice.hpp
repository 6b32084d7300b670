// A service manager that waits to hear when this process is ready: systemd's Type=notify.
#pragma once

#include <string_view>

namespace wisp::cli {

/// Sends lines such as "READY=1" to the socket that $NOTIFY_SOCKET names. Without one, or when it
/// cannot be reached, nothing happens: the work matters more than who hears of it.
void notify_systemd(std::string_view lines);

}  // namespace wisp::cli
