// Where the certificates lie that this machine trusts. A libcurl that came in a wheel has the path
// of the machine it was built on inside, and other systems keep theirs elsewhere.
#pragma once

#include <filesystem>
#include <string>

namespace wisp {

/// The file that SSL_CERT_FILE names, whether or not it is there: what was asked for is never
/// replaced in silence. Else the first file that a system is known to keep its authorities in,
/// below `root`; empty when there is none, and then libcurl's own default counts.
std::string find_ca_bundle(const std::filesystem::path& root = "/");

}  // namespace wisp
