// Listening for HTTP on a port that is nobody else's.
#pragma once

#include <string>

#include "wisp/result.hpp"

namespace httplib {
class Server;
}

namespace wisp::cli {

/// The port that `server` has now; 0 asks for any that is free. kConflict when another program
/// listens there: two never share one, whatever the HTTP library would allow. The error says no
/// cure, since options have different names.
Result<int> listen_alone(httplib::Server& server, const std::string& host, int port);

}  // namespace wisp::cli
