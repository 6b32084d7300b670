// A service manager that waits to hear when this process is ready: systemd's Type=notify.
#pragma once

#include <string_view>

namespace wisp::cli {

/// Speaks to the socket that $NOTIFY_SOCKET names. Without one, or when it cannot be reached,
/// nothing happens: the work matters more than who hears of it.
class ServiceNotice {
  public:
    /// How this process is, on one line; the first time it says that it is ready, too.
    void tell(std::string_view status);

  private:
    bool ready_ = false;
};

}  // namespace wisp::cli
