#include "store/s3/credentials.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/text.hpp"
#include "base/try.hpp"
#include "store/s3/remote_credentials.hpp"

namespace wisp {
namespace {

constexpr std::int64_t kRenewAheadMs = 5 * 60'000;
constexpr std::int64_t kPauseMs = 30'000;

/// Keys go into headers; a stray line break must not become a header of its own.
bool is_plain(const std::string& key) {
    for (const char c : key) {
        if (c <= ' ' || c > '~') return false;
    }
    return true;
}

Result<Credentials> checked(Credentials credentials) {
    const AwsKeys& keys = credentials.keys;
    if (keys.access_key_id.empty() || keys.secret_access_key.empty()) {
        return fail(ErrorKind::kDenied, "the AWS credentials lack the key id or the secret");
    }
    if (!is_plain(keys.access_key_id) || !is_plain(keys.secret_access_key) ||
        !is_plain(keys.session_token)) {
        return fail(ErrorKind::kDenied,
                    "the AWS credentials hold blanks or other characters that no key has; check "
                    "how they were copied");
    }
    return credentials;
}

}  // namespace

CredentialChain::CredentialChain(Environment environment, std::shared_ptr<HttpClient> http,
                                 std::shared_ptr<Clock> clock, std::string region)
    : environment_(std::move(environment)),
      http_(std::move(http)),
      clock_(std::move(clock)),
      region_(std::move(region)) {}

Result<AwsKeys> CredentialChain::keys() {
    const std::lock_guard lock(mutex_);
    const std::int64_t now_ms = clock_->now_ms();
    const bool due =
        !current_ || (current_->expires_ms != 0 && now_ms > current_->expires_ms - kRenewAheadMs);
    if (!due) return current_->keys;
    const bool still_good = current_ && now_ms < current_->expires_ms;
    if (still_good && now_ms < next_try_ms_) return current_->keys;
    auto renewed = load();
    if (!renewed && still_good) {
        next_try_ms_ = now_ms + kPauseMs;
        return current_->keys;
    }
    if (!renewed) return std::unexpected(std::move(renewed).error());
    current_ = std::move(*renewed);
    // A source may hand out keys that are about to expire; asking it again at once helps nobody.
    next_try_ms_ = now_ms + kPauseMs;
    return current_->keys;
}

void CredentialChain::reject(const AwsKeys& refused) {
    const std::lock_guard lock(mutex_);
    if (current_ && current_->keys.access_key_id == refused.access_key_id &&
        current_->keys.session_token == refused.session_token) {
        current_.reset();
    }
}

Result<std::optional<Credentials>> CredentialChain::from_environment() const {
    Credentials found;
    found.keys = {environment_("AWS_ACCESS_KEY_ID"), environment_("AWS_SECRET_ACCESS_KEY"),
                  environment_("AWS_SESSION_TOKEN")};
    const bool id = !found.keys.access_key_id.empty();
    const bool secret = !found.keys.secret_access_key.empty();
    if (!id && !secret) return std::nullopt;
    if (!id || !secret) {
        return fail(ErrorKind::kDenied,
                    fmt::format("{} is set, but not {}; set both or neither",
                                id ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                                id ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID"));
    }
    return found;
}

Result<std::optional<Credentials>> CredentialChain::from_profile() const {
    // Read anew: other tools renew the keys in these files while we run.
    WISP_ASSIGN(const AwsProfile profile, load_aws_profile(environment_));
    Credentials found;
    found.keys = {profile.get("aws_access_key_id"), profile.get("aws_secret_access_key"),
                  profile.get("aws_session_token")};
    if (!found.keys.access_key_id.empty() && !found.keys.secret_access_key.empty()) return found;
    if (!profile.named_by_user) return std::nullopt;
    if (!profile.found) {
        return fail(ErrorKind::kDenied,
                    fmt::format("the profile {} of AWS_PROFILE is not in ~/.aws/credentials or "
                                "~/.aws/config; check the name",
                                shown(profile.name)));
    }
    return fail(ErrorKind::kDenied,
                fmt::format("the profile {} holds no keys; for one that signs in or takes a role, "
                            "run: eval \"$(aws configure export-credentials --format env)\"",
                            shown(profile.name)));
}

Result<Credentials> CredentialChain::load() {
    WISP_ASSIGN(auto found, from_environment());
    if (found) return checked(std::move(*found));
    WISP_ASSIGN(found, web_identity_credentials(environment_, region_, *http_));
    if (found) return checked(std::move(*found));
    WISP_ASSIGN(found, from_profile());
    if (found) return checked(std::move(*found));
    WISP_ASSIGN(found, container_credentials(environment_, *http_));
    if (found) return checked(std::move(*found));
    WISP_ASSIGN(found, instance_credentials(environment_, *http_));
    if (found) return checked(std::move(*found));
    return fail(
        ErrorKind::kDenied,
        "no AWS credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
        "AWS_PROFILE to a profile in ~/.aws/credentials");
}

}  // namespace wisp
