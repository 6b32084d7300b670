// Where the keys come from: the first source that has any, asked in the order of the AWS tools.
//
//   environment, web identity (STS), shared files, container metadata, instance metadata (IMDSv2)
// A source that is set up but fails is an error, not a reason to try the next one: the wrong
// identity is worse than none. Keys that expire are fetched again before they do. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "store/s3/aws_profile.hpp"
#include "store/s3/sigv4.hpp"
#include "web/http_client.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct Credentials {
    AwsKeys keys;
    std::int64_t expires_ms = 0;  // 0: they do not
};

class CredentialChain {
  public:
    CredentialChain(Environment environment, std::shared_ptr<HttpClient> http,
                    std::shared_ptr<Clock> clock, std::string region);

    /// kDenied when there are none, naming what can be set; kUnavailable when a source is down.
    Result<AwsKeys> keys();

    /// The store calls these expired: the next call of keys() asks the source again.
    void reject(const AwsKeys& refused);

  private:
    Result<Credentials> load();
    Result<std::optional<Credentials>> from_environment() const;
    Result<std::optional<Credentials>> from_profile() const;

    Environment environment_;
    std::shared_ptr<HttpClient> http_;
    std::shared_ptr<Clock> clock_;
    std::string region_;
    std::mutex mutex_;
    std::optional<Credentials> current_;
    std::int64_t next_try_ms_ = 0;  // after a failed renewal of keys that are still good
};

}  // namespace wisp
