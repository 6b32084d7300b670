// Keys that a service hands out: STS for a web identity, a container's agent, an EC2 instance.
//
// Each answers nothing when the environment does not set it up. Tokens travel in headers and
// bodies, never in an address; plain http only to this machine and its own link.
#pragma once

#include <optional>
#include <string>

#include "store/s3/credentials.hpp"

namespace wisp {

Result<std::optional<Credentials>> web_identity_credentials(const Environment& environment,
                                                            const std::string& region,
                                                            HttpClient& http);

Result<std::optional<Credentials>> container_credentials(const Environment& environment,
                                                         HttpClient& http);

/// Version 2 of the protocol only. Nothing when no such service answers.
Result<std::optional<Credentials>> instance_credentials(const Environment& environment,
                                                        HttpClient& http);

}  // namespace wisp
