#include "store/s3/s3_settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/try.hpp"
#include "store/s3/sigv4.hpp"

namespace wisp {
namespace {

bool is_bucket_name(const std::string& name) {
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '-' || c == '_';
    };
    return name.size() >= 3 && name.size() <= 255 && std::ranges::all_of(name, fits) &&
           name[0] != '.' && name.find("..") == std::string::npos;
}

bool is_region(const std::string& name) {
    return !name.empty() && name.size() <= 63 && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
}

}  // namespace

Url S3Settings::bucket_url(const std::string& in_region) const {
    if (!endpoint.empty()) {
        // Held against the rules when the settings were made.
        Url url = parse_url(endpoint).value_or(Url{});
        url.query.clear();
        while (url.path.ends_with('/')) url.path.pop_back();
        url.path += "/" + percent_encoded(bucket, false);
        return url;
    }
    const std::string suffix = in_region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
    Url url;
    url.scheme = "https";
    url.host = fmt::format("s3.{}.{}", in_region, suffix);
    // A dot in the name would fall outside the wildcard of AWS's certificate.
    if (bucket.find('.') != std::string::npos) {
        url.path = "/" + percent_encoded(bucket, false);
    } else {
        url.host = bucket + "." + url.host;
    }
    return url;
}

std::string S3Settings::label() const {
    if (is_hub()) return hub;
    if (endpoint.empty()) return "s3://" + bucket;
    return fmt::format("s3://{} at {}", bucket, parse_url(endpoint).value_or(Url{}).origin());
}

Result<S3Settings> s3_settings_from(const Environment& environment, const std::string& bucket) {
    S3Settings settings;
    if (!is_bucket_name(bucket)) {
        return fail(
            ErrorKind::kInvalid,
            fmt::format("{} is not the name of a bucket; write s3://bucket/prefix", shown(bucket)));
    }
    settings.bucket = bucket;
    WISP_ASSIGN(const AwsProfile profile, load_aws_profile(environment));
    const auto first_of = [&](std::initializer_list<const char*> variables, const char* setting) {
        for (const char* variable : variables) {
            if (std::string value = environment(variable); !value.empty()) return value;
        }
        return profile.get(setting);
    };
    settings.endpoint = first_of({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url");
    if (environment("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") == "true") settings.endpoint.clear();
    if (!settings.endpoint.empty()) {
        if (const auto url = parse_url(settings.endpoint); !url) {
            return fail(ErrorKind::kInvalid, fmt::format("AWS_ENDPOINT_URL: {}", url.error().text));
        }
    }
    if (const auto region = first_of({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region");
        !region.empty()) {
        settings.region = region;
    }
    if (!is_region(settings.region)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} is not the name of a region; check AWS_REGION",
                                shown(settings.region)));
    }
    settings.ca_bundle = first_of({"AWS_CA_BUNDLE"}, "ca_bundle");
    return settings;
}

}  // namespace wisp
