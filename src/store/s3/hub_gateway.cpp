#include "store/s3/hub_gateway.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace {

constexpr std::string_view kScheme = "hf://";
constexpr std::string_view kPublicGateway = "https://s3.hf.co";
constexpr std::string_view kKeyMark = "HFAK";
constexpr std::string_view kHowToGetKeys =
    "on the Hub's page of access tokens (settings/tokens) open a token's menu and choose "
    "\"Generate S3 credentials\", then set HF_S3_ACCESS_KEY_ID and HF_S3_SECRET_ACCESS_KEY";

// The Hub advises as few parts as possible.
constexpr std::uint64_t kMultipartAbove = std::uint64_t{2} << 30;

/// A free account has 1,000 calls in five minutes: with steps twenty seconds apart or more, that is
/// enough for 16 replicas which ask at most every ten seconds, and for their publisher.
constexpr std::uint32_t kPollMs = 10'000;

bool is_hub_name(std::string_view name) {
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '-' || c == '_';
    };
    return !name.empty() && name.size() <= 96 && std::ranges::all_of(name, fits) &&
           name[0] != '.' && name.find("..") == std::string_view::npos;
}

Error bad_hub_address(const std::string& url, std::string_view why) {
    return {
        ErrorKind::kInvalid,
        fmt::format("address {} {}; write hf://buckets/namespace/name/prefix", shown(url), why)};
}

bool is_public_hub(std::string endpoint) {
    while (endpoint.ends_with('/')) endpoint.pop_back();
    return endpoint.empty() || endpoint == "https://huggingface.co" ||
           endpoint == "https://hf.co" || endpoint == "https://www.huggingface.co";
}

/// As huggingface_hub looks for one.
bool finds_token(const Environment& environment) {
    if (!environment("HF_TOKEN").empty()) return true;
    std::string path = environment("HF_TOKEN_PATH");
    if (path.empty()) {
        std::string home = environment("HF_HOME");
        if (home.empty()) {
            const std::string cache = environment("XDG_CACHE_HOME");
            home = (cache.empty() ? environment("HOME") + "/.cache" : cache) + "/huggingface";
        }
        path = home + "/token";
    }
    if (path.starts_with("~/")) path = environment("HOME") + path.substr(1);
    const auto text = read_small_file(path);
    return text && text->find_first_not_of(" \t\r\n") != std::string::npos;
}

Result<std::optional<AwsKeys>> pair_from(const Environment& environment, const char* id_name,
                                         const char* secret_name) {
    AwsKeys keys{environment(id_name), environment(secret_name), {}};
    const bool id = !keys.access_key_id.empty();
    const bool secret = !keys.secret_access_key.empty();
    if (!id && !secret) return std::nullopt;
    if (id && secret) return keys;
    return fail(ErrorKind::kDenied,
                fmt::format("{} is set, but not {}; set both or neither",
                            id ? id_name : secret_name, id ? secret_name : id_name));
}

/// WISP_HUB_POLL, in seconds, for accounts that have more.
std::uint32_t poll_from(const Environment& environment) {
    const std::string text = environment("WISP_HUB_POLL");
    std::uint32_t seconds = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    const bool read = problem == std::errc() && end == text.data() + text.size();
    return read && seconds >= 1 && seconds <= 60 ? seconds * 1000 : kPollMs;
}

bool are_the_hubs(const AwsKeys& keys) {
    return keys.access_key_id.starts_with(kKeyMark) && !keys.secret_access_key.empty();
}

Result<std::optional<AwsKeys>> keys_from(const Environment& environment) {
    WISP_ASSIGN(auto own, pair_from(environment, "HF_S3_ACCESS_KEY_ID", "HF_S3_SECRET_ACCESS_KEY"));
    if (own) return own;
    if (environment("AWS_ACCESS_KEY_ID").starts_with(kKeyMark)) {
        return pair_from(environment, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
    }
    const std::string named = environment("AWS_PROFILE");
    for (const std::string& name : {named, std::string("hf")}) {
        if (name.empty()) continue;
        WISP_ASSIGN(const AwsProfile profile, load_aws_profile([&](const char* variable) {
                        return std::string_view(variable) == "AWS_PROFILE" ? name
                                                                           : environment(variable);
                    }));
        AwsKeys keys{profile.get("aws_access_key_id"), profile.get("aws_secret_access_key"), {}};
        if (are_the_hubs(keys)) return keys;
    }
    return std::nullopt;
}

}  // namespace

Result<HubAddress> parse_hub_address(const std::string& url) {
    if (!url.starts_with(kScheme)) {
        return std::unexpected(bad_hub_address(url, "is none of the Hugging Face Hub"));
    }
    std::string_view rest = std::string_view(url).substr(kScheme.size());
    if (!rest.starts_with("buckets/")) {
        return std::unexpected(bad_hub_address(url, "names no bucket of the Hub"));
    }
    rest.remove_prefix(std::string_view("buckets/").size());
    const std::size_t slash = rest.find('/');
    if (slash == std::string_view::npos) {
        return std::unexpected(bad_hub_address(url, "lacks the namespace or the name"));
    }
    HubAddress address;
    address.owner = rest.substr(0, slash);
    rest.remove_prefix(slash + 1);
    const std::size_t end = std::min(rest.find('/'), rest.size());
    address.name = rest.substr(0, end);
    address.prefix = end < rest.size() ? rest.substr(end + 1) : std::string_view();
    while (address.prefix.ends_with('/')) address.prefix.pop_back();
    if (!is_hub_name(address.owner) || !is_hub_name(address.name)) {
        return std::unexpected(bad_hub_address(url, "lacks the namespace or the name"));
    }
    if (!address.prefix.empty()) WISP_TRY(check_hub_key(address.prefix));
    return address;
}

Result<void> check_hub_key(std::string_view key) {
    WISP_TRY(check_key(key));
    const bool climbs = key.find("../") != std::string_view::npos || key.ends_with("..");
    if (key.find('\\') == std::string_view::npos && !climbs) return {};
    return fail(ErrorKind::kInvalid,
                fmt::format("object name {} holds a backslash or a part that ends in '..', which "
                            "the Hugging Face Hub does not take; choose another name",
                            shown(key)));
}

Result<HubGateway> hub_gateway_from(const Environment& environment) {
    HubGateway gateway;
    gateway.has_token = finds_token(environment);
    gateway.endpoint = environment("HF_S3_ENDPOINT");
    if (!gateway.endpoint.empty()) {
        if (const auto url = parse_url(gateway.endpoint); !url) {
            return fail(ErrorKind::kInvalid, fmt::format("HF_S3_ENDPOINT: {}", url.error().text));
        }
    } else if (is_public_hub(environment("HF_ENDPOINT"))) {
        gateway.endpoint = kPublicGateway;
    } else {
        gateway.lacking =
            "HF_ENDPOINT names another Hub than the public one, and its S3 gateway "
            "is not known; set HF_S3_ENDPOINT to it";
    }
    WISP_ASSIGN(const auto keys, keys_from(environment));
    if (keys) {
        gateway.keys = *keys;
    } else {
        if (!gateway.lacking.empty()) gateway.lacking += "; ";
        gateway.lacking += fmt::format("there are no S3 keys for the Hub: {}", kHowToGetKeys);
    }
    return gateway;
}

Result<HubAccess> hub_access(const HubAddress& address) {
    WISP_ASSIGN(const HubGateway gateway, hub_gateway_from(process_environment()));
    HubAccess access{{}, gateway.lacking, gateway.has_token};
    if (gateway.ready()) access.gateway = fmt::format("{}/{}", gateway.endpoint, address.owner);
    return access;
}

S3Settings hub_settings(const HubAddress& address, const HubGateway& gateway,
                        const Environment& environment) {
    S3Settings settings;
    settings.bucket = address.name;
    settings.hub = fmt::format("{}buckets/{}", kScheme, address.id());
    settings.endpoint = gateway.endpoint;
    while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
    if (settings.endpoint != kPublicGateway) {
        settings.hub +=
            fmt::format(" at {}", parse_url(settings.endpoint).value_or(Url{}).origin());
    }
    settings.endpoint += "/" + address.owner;
    settings.ca_bundle = environment("AWS_CA_BUNDLE");
    settings.multipart_above_bytes = settings.part_bytes = kMultipartAbove;
    settings.poll_ms = poll_from(environment);
    return settings;
}

Environment only_keys(const AwsKeys& keys) {
    return [keys](const char* name) -> std::string {
        const std::string_view asked(name);
        if (asked == "AWS_ACCESS_KEY_ID") return keys.access_key_id;
        if (asked == "AWS_SECRET_ACCESS_KEY") return keys.secret_access_key;
        return {};
    };
}

StoreTerms hub_terms(const S3Settings& settings) {
    StoreTerms terms;
    terms.way = fmt::format(
        "the Hugging Face Hub through its S3 gateway at {}: commits are "
        "conditional writes, so that several writers are safe",
        settings.endpoint);
    terms.poll_ms = settings.poll_ms;
    terms.few_requests = true;
    return terms;
}

}  // namespace wisp
