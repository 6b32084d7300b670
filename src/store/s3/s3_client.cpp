#include "store/s3/s3_client.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "base/sha256.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "store/s3/s3_xml.hpp"
#include "store/s3/wire_time.hpp"

namespace wisp {
namespace {

constexpr int kMostRedirects = 3;
constexpr std::int64_t kSkewMs = 4 * 60'000;  // S3 allows fifteen minutes, others five

bool is_redirect(long status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

NamedValues query_of(const std::string& text) {
    NamedValues query;
    std::size_t at = 0;
    while (at < text.size()) {
        const std::size_t end = std::min(text.find('&', at), text.size());
        const std::string pair = text.substr(at, end - at);
        const std::size_t equals = std::min(pair.find('='), pair.size());
        if (!pair.empty()) {
            query.emplace_back(
                percent_decoded(pair.substr(0, equals)),
                equals < pair.size() ? percent_decoded(pair.substr(equals + 1)) : std::string());
        }
        at = end + 1;
    }
    return query;
}

bool is_safe_read(const S3Request& request) {
    return request.method == "GET" || request.method == "HEAD";
}

bool calls_keys_expired(const std::string& code) {
    return code == "ExpiredToken" || code == "ExpiredTokenException" ||
           code == "TokenRefreshRequired";
}

}  // namespace

S3Client::S3Client(S3Settings settings, std::shared_ptr<CredentialChain> credentials,
                   std::shared_ptr<HttpClient> http, std::shared_ptr<Clock> clock)
    : settings_(std::move(settings)),
      credentials_(std::move(credentials)),
      http_(std::move(http)),
      clock_(std::move(clock)),
      region_(settings_.region) {}

std::string S3Client::region() const {
    const std::lock_guard lock(mutex_);
    return region_;
}

S3Client::Course S3Client::first_course(const S3Request& request) const {
    Course course;
    course.region = region();
    course.target = settings_.bucket_url(course.region);
    if (!request.key.empty()) course.target.path += "/" + percent_encoded(request.key, true);
    if (course.target.path.empty()) course.target.path = "/";
    course.target.query = canonical_query(request.query);
    course.payload_sha256 = to_hex(sha256(request.body));
    return course;
}

HttpRequest S3Client::prepare(const S3Request& request, const Course& course) const {
    HttpRequest http;
    http.method = request.method;
    http.url = course.target.text();
    http.headers = request.headers;
    http.body = request.body;
    http.into = request.into;
    http.connect_timeout = settings_.connect_timeout;
    http.stall_timeout =
        request.stall_timeout.count() != 0 ? request.stall_timeout : settings_.stall_timeout;
    http.despite_stop = request.despite_stop;
    http.send_once = request.send_once;
    if (request.despite_stop) http.total_timeout = Milliseconds(5000);
    if (!course.signed_request) {
        std::erase_if(http.headers,
                      [](const auto& header) { return header.first.starts_with("x-amz-"); });
        return http;
    }
    SigningScope scope;
    scope.region = course.region;
    scope.amz_date = amz_date_of(clock_->now_ms() + skew_ms_.load());
    http.headers.emplace_back("x-amz-content-sha256", course.payload_sha256);
    http.headers.emplace_back("x-amz-date", scope.amz_date);
    if (!course.keys.session_token.empty()) {
        http.headers.emplace_back("x-amz-security-token", course.keys.session_token);
    }
    SignableRequest signable{request.method, course.target.path, query_of(course.target.query),
                             http.headers, course.payload_sha256};
    signable.headers.emplace_back("host", course.target.authority());
    http.headers.emplace_back("Authorization", sign_v4(signable, course.keys, scope).authorization);
    return http;
}

Result<HttpResponse> S3Client::send(const S3Request& request) {
    Course course = first_course(request);
    for (;;) {
        if (course.signed_request) {
            WISP_ASSIGN(course.keys, credentials_->keys());
        }
        WISP_ASSIGN(HttpResponse response, exchange(request, course));
        WISP_ASSIGN(const bool again, correct(response, request, course));
        if (!again) return response;
    }
}

Result<HttpResponse> S3Client::exchange(const S3Request& request, const Course& course) {
    // What a redirect led to is not counted.
    const bool counted = settings_.is_hub() && course.signed_request && !request.despite_stop;
    if (counted) {
        const Milliseconds pause = pacer_.pause(clock_->now_ms());
        if (pause.count() != 0) clock_->sleep_for(pause);
    }
    WISP_ASSIGN(HttpResponse response, http_->perform(prepare(request, course)));
    if (counted) pacer_.note(response.header("ratelimit"), clock_->now_ms());
    return response;
}

Result<bool> S3Client::correct(const HttpResponse& response, const S3Request& request,
                               Course& course) {
    if (response.status < 300 || response.status >= 500 || !course.signed_request) {
        if (is_redirect(response.status)) return follow(response, request, course);
        return false;
    }
    const S3Problem problem = parse_problem(response.body_text()).value_or(S3Problem{});
    const bool refused = response.status == 400 || response.status == 401 || response.status == 403;
    if ((refused || is_redirect(response.status)) && !course.region_corrected) {
        const std::string named(response.header("x-amz-bucket-region"));
        if (correct_region(response, named.empty() ? problem.region : named, request, course)) {
            course.region_corrected = true;
            return true;
        }
    }
    if (is_redirect(response.status)) return follow(response, request, course);
    if (refused && !course.clock_corrected && correct_clock(response, problem.code)) {
        course.clock_corrected = true;
        return true;
    }
    // HEAD carries no code; keys that can be renewed are worth a second try.
    const bool perhaps_expired = calls_keys_expired(problem.code) ||
                                 (request.method == "HEAD" && !course.keys.session_token.empty());
    if (refused && !course.keys_renewed && perhaps_expired) {
        course.keys_renewed = true;
        credentials_->reject(course.keys);
        WISP_ASSIGN(const AwsKeys renewed, credentials_->keys());
        return renewed.session_token != course.keys.session_token ||
               renewed.access_key_id != course.keys.access_key_id;
    }
    return false;
}

bool S3Client::correct_clock(const HttpResponse& response, const std::string& code) {
    const auto date_ms = parse_http_date(response.header("date"));
    if (!date_ms) return false;
    const std::int64_t skew_ms = *date_ms - clock_->now_ms();
    const bool far_off = std::abs(skew_ms - skew_ms_.load()) > kSkewMs;
    if (!far_off && code != "RequestTimeTooSkewed") return false;
    skew_ms_ = skew_ms;
    return true;
}

bool S3Client::correct_region(const HttpResponse& response, const std::string& named,
                              const S3Request& request, Course& course) {
    const bool is_name =
        !named.empty() && named.size() <= 63 &&
        named.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
    if (!is_name || named == course.region) return false;
    // AWS names the region in refusals for other reasons too; only a differing one matters.
    const bool meant =
        is_redirect(response.status) || response.status == 400 || response.status == 403;
    if (!meant) return false;
    {
        const std::lock_guard lock(mutex_);
        region_ = named;
    }
    const Course fresh = first_course(request);
    course.region = fresh.region;
    course.target = fresh.target;
    return true;
}

Result<bool> S3Client::follow(const HttpResponse& response, const S3Request& request,
                              Course& course) {
    const std::string location(response.header("location"));
    if (location.empty()) return false;
    const std::string where = settings_.label();
    const auto target = parse_url(location, course.target.text());
    if (!target) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} redirects to nowhere: {}", where, target.error().text));
    }
    if (++course.redirects > kMostRedirects) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} redirects more than {} times", where, kMostRedirects));
    }
    if (course.target.scheme == "https" && target->scheme != "https") {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} redirects from https to plain http at {}; not followed", where,
                                shown(target->authority())));
    }
    const bool same_host = target->origin() == course.target.origin();
    if (!same_host && is_link_local(target->host)) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} redirects to the link-local address {}; not followed", where,
                                shown(target->authority())));
    }
    // AWS moves young buckets to a host of its own, which wants a signature too.
    const bool within_aws =
        settings_.endpoint.empty() && target->scheme == "https" &&
        (target->host.ends_with(".amazonaws.com") || target->host.ends_with(".amazonaws.com.cn"));
    if (!same_host && !within_aws && !is_safe_read(request)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} redirects writes to {}; if that is right, set {} to it", where,
                                shown(target->origin()),
                                settings_.is_hub() ? "HF_S3_ENDPOINT" : "AWS_ENDPOINT_URL_S3"));
    }
    const bool carries_own = target->query.find("X-Amz-Signature=") != std::string::npos;
    course.signed_request = course.signed_request && (same_host || within_aws) && !carries_own;
    course.target = *target;
    if (course.signed_request) course.target.query = canonical_query(query_of(target->query));
    return true;
}

}  // namespace wisp
