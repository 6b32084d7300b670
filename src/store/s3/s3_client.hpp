// Signed requests to one bucket, and what must be right before an answer means anything.
//
// Corrects by itself, each at most once per request: a clock that is off, keys that expired, a
// bucket in another region. Follows redirects of reads, at most three: Authorization and x-amz-*
// headers stay behind when the host changes, and https never becomes http. Slows down when the Hub
// says that few requests are left. Everything else is the caller's, repeating included.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "store/s3/credentials.hpp"
#include "store/s3/rate_pacer.hpp"
#include "store/s3/s3_settings.hpp"
#include "store/s3/sigv4.hpp"
#include "web/http_client.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct S3Request {
    std::string method = "GET";
    std::string key;  // empty: the bucket itself
    NamedValues query;
    NamedValues headers;
    std::span<const std::byte> body;
    std::span<std::byte> into;
    Milliseconds stall_timeout{0};  // 0: as in the settings
    bool despite_stop = false;
    bool send_once = false;
};

class S3Client {
  public:
    S3Client(S3Settings settings, std::shared_ptr<CredentialChain> credentials,
             std::shared_ptr<HttpClient> http, std::shared_ptr<Clock> clock);

    /// An answer of any status; errors are those of HttpClient and CredentialChain, and kInvalid or
    /// kCorrupt for redirects that may not be followed.
    Result<HttpResponse> send(const S3Request& request);

    const S3Settings& settings() const { return settings_; }
    Clock& clock() { return *clock_; }

  private:
    /// What has been corrected for one request so far.
    struct Course {
        Url target;
        std::string region;
        std::string payload_sha256;
        AwsKeys keys;
        bool signed_request = true;
        bool clock_corrected = false;
        bool keys_renewed = false;
        bool region_corrected = false;
        int redirects = 0;
    };
    HttpRequest prepare(const S3Request& request, const Course& course) const;
    /// True: the course has changed, send again. False: the answer stands.
    Result<bool> correct(const HttpResponse& response, const S3Request& request, Course& course);
    bool correct_clock(const HttpResponse& response, const std::string& code);
    bool correct_region(const HttpResponse& response, const std::string& region,
                        const S3Request& request, Course& course);
    Result<bool> follow(const HttpResponse& response, const S3Request& request, Course& course);
    Course first_course(const S3Request& request) const;
    Result<HttpResponse> exchange(const S3Request& request, const Course& course);
    std::string region() const;

    S3Settings settings_;
    std::shared_ptr<CredentialChain> credentials_;
    std::shared_ptr<HttpClient> http_;
    std::shared_ptr<Clock> clock_;
    RatePacer pacer_;
    std::atomic<std::int64_t> skew_ms_{0};  // the store's clock minus ours
    mutable std::mutex mutex_;
    std::string region_;
};

}  // namespace wisp
