#include "store/s3/remote_credentials.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.hpp"
#include "base/try.hpp"
#include "store/s3/s3_xml.hpp"
#include "store/s3/wire_limits.hpp"
#include "store/s3/wire_time.hpp"
#include "web/http_url.hpp"

namespace wisp {
namespace {

std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

HttpRequest local_request(std::string url) {
    HttpRequest request;
    request.url = std::move(url);
    request.answer_limit = limits::kCredentialBytes;
    request.connect_timeout = Milliseconds(1000);
    request.total_timeout = Milliseconds(5000);
    request.without_proxy = true;
    return request;
}

Error bad_answer(const std::string& who, const HttpResponse& response) {
    const bool passing = response.status >= 500 || response.status == 429;
    return {passing ? ErrorKind::kUnavailable : ErrorKind::kDenied,
            fmt::format("{} answered {} to the request for credentials; {}", who, response.status,
                        passing ? "try again" : "check the role that is attached")};
}

/// What container agents and instances answer. Never shown: it holds secrets.
Result<Credentials> parse_json_keys(const std::string& who, const HttpResponse& response) {
    const auto json = nlohmann::json::parse(response.body_text(), nullptr, false);
    const auto text = [&](const char* name) -> std::string {
        const auto at = json.find(name);
        return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    if (!json.is_object()) {
        return fail(ErrorKind::kUnavailable,
                    fmt::format("{} answered something other than credentials", who));
    }
    if (const std::string code = text("Code"); !code.empty() && code != "Success") {
        return fail(ErrorKind::kDenied,
                    fmt::format("{} has no credentials for us: {}", who, shown(code)));
    }
    Credentials found;
    found.keys = {text("AccessKeyId"), text("SecretAccessKey"), text("Token")};
    if (const std::string expires = text("Expiration"); !expires.empty()) {
        const auto expires_ms = parse_iso_time(expires);
        if (!expires_ms) {
            return fail(ErrorKind::kUnavailable,
                        fmt::format("{} names an expiry that is no time: {}", who, shown(expires)));
        }
        found.expires_ms = *expires_ms;
    }
    return found;
}

/// Where the container's agent listens; empty when there is none.
Result<std::string> container_address(const Environment& environment) {
    if (const auto path = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); !path.empty()) {
        if (path[0] != '/') {
            return fail(ErrorKind::kInvalid,
                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI must start with '/'");
        }
        return "http://169.254.170.2" + path;
    }
    const std::string full = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (full.empty()) return std::string();
    const auto url = parse_url(full);
    if (!url) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("AWS_CONTAINER_CREDENTIALS_FULL_URI: {}", url.error().text));
    }
    if (url->scheme != "https" && !is_loopback(url->host) && !is_link_local(url->host)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("AWS_CONTAINER_CREDENTIALS_FULL_URI names {} over plain http; only "
                                "this machine may be asked without TLS",
                                shown(url->host)));
    }
    return url->text();
}

}  // namespace

Result<std::optional<Credentials>> web_identity_credentials(const Environment& environment,
                                                            const std::string& region,
                                                            HttpClient& http) {
    const std::string token_file = environment("AWS_WEB_IDENTITY_TOKEN_FILE");
    const std::string role = environment("AWS_ROLE_ARN");
    if (token_file.empty() || role.empty()) return std::nullopt;
    auto token = read_small_file(token_file);
    if (!token) {
        return fail(ErrorKind::kDenied,
                    fmt::format("AWS_WEB_IDENTITY_TOKEN_FILE: {}", token.error().text));
    }
    std::string session = environment("AWS_ROLE_SESSION_NAME");
    if (session.empty()) session = "wisp";
    const std::string body = canonical_query({{"Action", "AssumeRoleWithWebIdentity"},
                                              {"Version", "2011-06-15"},
                                              {"RoleArn", role},
                                              {"RoleSessionName", session},
                                              {"WebIdentityToken", trimmed(*token)}});
    HttpRequest request;
    request.method = "POST";
    request.url = environment("AWS_ENDPOINT_URL_STS");
    if (request.url.empty()) {
        request.url = fmt::format("https://sts.{}.amazonaws.com{}/", region,
                                  region.starts_with("cn-") ? ".cn" : "");
    }
    WISP_ASSIGN(const Url url, parse_url(request.url));
    if (url.scheme != "https" && !is_loopback(url.host)) {
        return fail(ErrorKind::kInvalid, "AWS_ENDPOINT_URL_STS must be an https address");
    }
    request.headers = {{"Content-Type", "application/x-www-form-urlencoded"}};
    request.body = as_bytes(body);
    request.answer_limit = limits::kCredentialBytes;
    request.total_timeout = Milliseconds(30'000);
    WISP_ASSIGN(const HttpResponse response, http.perform(request));
    const std::string who = fmt::format("STS, asked for the role {},", shown(role));
    if (response.status != 200) return std::unexpected(bad_answer(who, response));
    const auto answer = parse_sts_answer(response.body_text());
    if (!answer) {
        return fail(ErrorKind::kUnavailable,
                    fmt::format("{} answered something other than credentials", who));
    }
    return Credentials{answer->keys, answer->expires_ms};
}

Result<std::optional<Credentials>> container_credentials(const Environment& environment,
                                                         HttpClient& http) {
    WISP_ASSIGN(std::string address, container_address(environment));
    if (address.empty()) return std::nullopt;
    HttpRequest request = local_request(std::move(address));
    std::string token = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (const auto path = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); !path.empty()) {
        auto text = read_small_file(path);
        if (!text) {
            return fail(
                ErrorKind::kDenied,
                fmt::format("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: {}", text.error().text));
        }
        token = trimmed(*text);
    }
    if (!token.empty()) request.headers.emplace_back("Authorization", token);
    WISP_ASSIGN(const HttpResponse response, http.perform(request));
    const std::string who = "the container's credential service";
    if (response.status != 200) return std::unexpected(bad_answer(who, response));
    WISP_ASSIGN(Credentials found, parse_json_keys(who, response));
    return found;
}

Result<std::optional<Credentials>> instance_credentials(const Environment& environment,
                                                        HttpClient& http) {
    if (const auto off = environment("AWS_EC2_METADATA_DISABLED"); off == "true" || off == "True") {
        return std::nullopt;
    }
    std::string base = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    if (base.empty()) base = "http://169.254.169.254";
    const auto url = parse_url(base);
    if (!url || !(is_loopback(url->host) || is_link_local(url->host))) {
        return fail(ErrorKind::kInvalid,
                    "AWS_EC2_METADATA_SERVICE_ENDPOINT must name a link-local address");
    }
    HttpRequest ask = local_request(url->origin() + "/latest/api/token");
    ask.method = "PUT";
    ask.headers = {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}};
    const auto token = http.perform(ask);
    // Most machines are not EC2 instances; silence there is an answer.
    if (!token || token->status == 404) return std::nullopt;
    const std::string who = "the instance metadata service";
    if (token->status != 200) return std::unexpected(bad_answer(who, *token));

    const std::string roles = "/latest/meta-data/iam/security-credentials/";
    HttpRequest look = local_request(url->origin() + roles);
    look.headers = {{"X-aws-ec2-metadata-token", std::string(token->body_text())}};
    WISP_ASSIGN(const HttpResponse role, http.perform(look));
    if (role.status == 404) return std::nullopt;
    if (role.status != 200) return std::unexpected(bad_answer(who, role));
    const std::string listed(role.body_text());
    const std::string name = trimmed(listed.substr(0, listed.find('\n')));
    look.url = url->origin() + roles + percent_encoded(name, false);
    WISP_ASSIGN(const HttpResponse response, http.perform(look));
    if (response.status != 200) return std::unexpected(bad_answer(who, response));
    WISP_ASSIGN(Credentials found, parse_json_keys(who, response));
    return found;
}

}  // namespace wisp
