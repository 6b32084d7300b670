#include "store/s3/s3_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/text.hpp"
#include "store/s3/rate_pacer.hpp"
#include "store/s3/wire_time.hpp"

namespace wisp {
namespace {

struct Rule {
    std::string_view code;
    ErrorKind kind;
};

/// Codes whose meaning the status alone does not tell.
constexpr std::array kRules = {
    Rule{"AccessDenied", ErrorKind::kDenied},
    Rule{"AuthorizationHeaderMalformed", ErrorKind::kDenied},
    Rule{"BadDigest", ErrorKind::kUnavailable},
    Rule{"ExpiredToken", ErrorKind::kDenied},
    Rule{"InternalError", ErrorKind::kUnavailable},
    Rule{"InvalidAccessKeyId", ErrorKind::kDenied},
    Rule{"InvalidToken", ErrorKind::kDenied},
    Rule{"NoSuchBucket", ErrorKind::kNoRun},
    Rule{"NoSuchUpload", ErrorKind::kUnavailable},
    Rule{"NotImplemented", ErrorKind::kIncapable},
    Rule{"OperationAborted", ErrorKind::kUnavailable},
    Rule{"QuotaExceeded", ErrorKind::kNoSpace},
    Rule{"QuotaExceededException", ErrorKind::kNoSpace},
    Rule{"RequestTimeout", ErrorKind::kUnavailable},
    Rule{"ServiceUnavailable", ErrorKind::kUnavailable},
    Rule{"SignatureDoesNotMatch", ErrorKind::kDenied},
    Rule{"SlowDown", ErrorKind::kUnavailable},
    Rule{"XAmzContentSHA256Mismatch", ErrorKind::kUnavailable},
    Rule{"XMinioStorageFull", ErrorKind::kNoSpace},
};

/// Load balancers say "later" in HTML, too; S3 says all else in XML.
bool is_web_page(const HttpResponse& response) {
    const long status = response.status;
    const bool final_answer = status >= 400 && status < 500 && status != 408 && status != 429;
    return final_answer && response.header("content-type").starts_with("text/html");
}

ErrorKind kind_of(long status, const std::string& code) {
    const auto rule = std::ranges::find(kRules, code, &Rule::code);
    if (rule != kRules.end()) return rule->kind;
    if (status == 401 || status == 403) return ErrorKind::kDenied;
    if (status == 404) return ErrorKind::kNotFound;
    if (status == 405 || status == 501) return ErrorKind::kIncapable;
    if (status == 408 || status == 409 || status == 429) return ErrorKind::kUnavailable;
    if (status == 507) return ErrorKind::kNoSpace;
    if (status >= 500) return ErrorKind::kUnavailable;
    return status >= 300 ? ErrorKind::kInvalid : ErrorKind::kCorrupt;
}

/// Seconds to wait, if the server asks for it.
std::optional<std::uint64_t> retry_after(const HttpResponse& response) {
    const std::string_view text = response.header("retry-after");
    if (!text.empty()) return parse_retry_after(text, response.header("date"));
    const auto limit = parse_rate_limit(response.header("ratelimit"));
    return limit ? std::optional(limit->reset_seconds) : std::nullopt;
}

/// Empty where the Hub is no different from others.
std::string hub_cure_of(ErrorKind kind, const S3Settings& settings, const std::string& code) {
    if (kind == ErrorKind::kDenied) {
        return "check HF_S3_ACCESS_KEY_ID and HF_S3_SECRET_ACCESS_KEY; the token they were made "
               "from must have the permission on this bucket, Write for publishing";
    }
    if (code == "NoSuchBucket") {
        return fmt::format(
            "there is no such bucket; create it with `hf buckets create "
            "<namespace>/{}`, or check the address",
            shown(settings.bucket));
    }
    return kind == ErrorKind::kInvalid ? "check the address and HF_S3_ENDPOINT" : "";
}

std::string cure_of(ErrorKind kind, const S3Settings& settings, const std::string& code,
                    const HttpResponse& response) {
    if (settings.is_hub()) {
        if (std::string cure = hub_cure_of(kind, settings, code); !cure.empty()) return cure;
    }
    switch (kind) {
        case ErrorKind::kDenied:
            return "check the keys (AWS_ACCESS_KEY_ID or AWS_PROFILE), their permissions on the "
                   "bucket, AWS_REGION and the endpoint";
        case ErrorKind::kNoRun:
            return fmt::format(
                "there is no bucket {}; create it, or check the name and AWS_ENDPOINT_URL",
                shown(settings.bucket));
        case ErrorKind::kNotFound: return "there is no such object";
        case ErrorKind::kNoSpace: return "the store is full or a quota is used up; free room there";
        case ErrorKind::kIncapable:
            return "this store cannot do it; use another, or ask it with `wisp doctor`";
        case ErrorKind::kUnavailable: {
            const auto wait = retry_after(response);
            return wait ? fmt::format("try again (Retry-After: {})", *wait) : "try again";
        }
        default: return "check the endpoint (AWS_ENDPOINT_URL) and the bucket";
    }
}

}  // namespace

Error s3_error(const S3Settings& settings, const std::string& what, const HttpResponse& response,
               const S3Problem& problem) {
    if (problem.code.empty() && !settings.is_hub() && is_web_page(response)) {
        return {ErrorKind::kInvalid,
                fmt::format("{} in {}: {} with a web page, so this is no S3 server; check "
                            "AWS_ENDPOINT_URL",
                            what, settings.label(), response.status)};
    }
    const ErrorKind kind = kind_of(response.status, problem.code);
    std::string said = fmt::format("{}", response.status);
    if (!problem.code.empty()) said += " " + shown(problem.code);
    if (!problem.message.empty()) said += ": " + shown(problem.message);
    Error error{kind, fmt::format("{} in {}: {}; {}", what, settings.label(), said,
                                  cure_of(kind, settings, problem.code, response))};
    if (const auto wait = retry_after(response); kind == ErrorKind::kUnavailable && wait) {
        error.retry_after_ms = static_cast<std::uint32_t>(*wait * 1000);
    }
    return error;
}

Error s3_error(const S3Settings& settings, const std::string& what, const HttpResponse& response) {
    const S3Problem problem = parse_problem(response.body_text()).value_or(S3Problem{});
    return s3_error(settings, what, response, problem);
}

}  // namespace wisp
