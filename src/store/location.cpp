#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "base/text.hpp"
#include "base/try.hpp"
#include "store/folder_store.hpp"
#include "store/retry_store.hpp"
#include "store/s3/s3_store.hpp"
#include "wisp/store.hpp"

namespace wisp {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kKnown =
    "give s3://bucket/prefix, hf://buckets/namespace/name/prefix, file:///absolute/path, or the "
    "path of a folder";

Error bad_address(const std::string& url, std::string_view why) {
    return {ErrorKind::kInvalid, fmt::format("address {} {}; {}", shown(url), why, kKnown)};
}

/// The part before "://", if there is one and it reads like a scheme.
std::optional<std::string> scheme_of(const std::string& url) {
    const std::size_t end = url.find("://");
    if (end == std::string::npos || end == 0) return std::nullopt;
    std::string scheme;
    for (const char c : url.substr(0, end)) {
        const auto letter = static_cast<unsigned char>(c);
        if (!std::isalnum(letter) && c != '+' && c != '-' && c != '.') return std::nullopt;
        scheme += static_cast<char>(std::tolower(letter));
    }
    return scheme;
}

/// "s3:/bucket/run" or "S3:bucket": a folder of such a name is hardly meant.
bool lacks_slashes(const std::string& url) {
    const std::size_t colon = url.find(':');
    if (colon == std::string::npos) return false;
    std::string scheme = url.substr(0, colon);
    std::ranges::transform(scheme, scheme.begin(), [](unsigned char c) { return std::tolower(c); });
    return scheme == "s3" || scheme == "hf" || scheme == "file" || scheme == "http" ||
           scheme == "https";
}

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/// nullopt when a '%' is not followed by two hex digits.
std::optional<std::string> percent_decoded(std::string_view text) {
    std::string decoded;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded += text[i];
            continue;
        }
        if (i + 2 >= text.size()) return std::nullopt;
        const int high = hex_value(text[i + 1]);
        const int low = hex_value(text[i + 2]);
        if (high < 0 || low < 0) return std::nullopt;
        decoded += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return decoded;
}

/// Rooted at "/", so that one run can reach its neighbours by their prefixes.
Result<Location> open_folder(const std::string& path, const std::string& url) {
    if (path.empty() || path.find('\0') != std::string::npos) {
        return std::unexpected(bad_address(url, "names no folder"));
    }
    std::error_code failure;
    fs::path absolute = fs::absolute(path, failure);
    bool climbs = false;
    for (const fs::path& part : absolute) climbs = climbs || part == "..";
    // ".." after a symbolic link leads where the link points, which only the file system knows.
    if (!failure && climbs) absolute = fs::weakly_canonical(absolute, failure);
    if (failure) {
        return std::unexpected(bad_address(url, "cannot be resolved: " + failure.message()));
    }
    std::string prefix = absolute.lexically_normal().relative_path().string();
    while (prefix.ends_with('/')) prefix.pop_back();
    if (!prefix.empty()) WISP_TRY(check_key(prefix));
    return Location{std::make_shared<FolderStore>("/", prefix), prefix, url};
}

Result<Location> open_file_url(const std::string& url) {
    std::string_view rest = std::string_view(url).substr(url.find("://") + 3);
    if (rest.starts_with("localhost/")) rest.remove_prefix(9);
    if (!rest.starts_with('/')) {
        return std::unexpected(bad_address(url, "names another machine or a relative path"));
    }
    const auto path = percent_decoded(rest);
    if (!path) return std::unexpected(bad_address(url, "has a broken %-escape"));
    return open_folder(*path, url);
}

/// Nothing in it is escaped: a key may hold any character, '%' included.
Result<Location> open_bucket(const std::string& url) {
    const std::string rest = url.substr(url.find("://") + 3);
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    std::string prefix = slash < rest.size() ? rest.substr(slash + 1) : std::string();
    while (prefix.ends_with('/')) prefix.pop_back();
    if (!prefix.empty()) WISP_TRY(check_key(prefix));
    WISP_ASSIGN(std::shared_ptr<Store> store, open_s3_store(rest.substr(0, slash)));
    return Location{std::make_shared<RetryStore>(std::move(store)), std::move(prefix), url};
}

/// The Hub's windows are five minutes long: a client that used one up is served again after it.
constexpr RetryPlan kHubRetries = {.tries = 12, .total = Milliseconds(330'000)};

Result<Location> open_hub_bucket(const std::string& url) {
    WISP_ASSIGN(HubAddress address, parse_hub_address("hf" + url.substr(url.find("://"))));
    WISP_ASSIGN(std::shared_ptr<Store> store, open_hub_store(address));
    return Location{std::make_shared<RetryStore>(std::move(store), kHubRetries),
                    std::move(address.prefix), url};
}

}  // namespace

Result<Location> open_location(const std::string& url) {
    if (url.empty()) return std::unexpected(bad_address(url, "is empty"));
    const auto scheme = scheme_of(url);
    if (!scheme && lacks_slashes(url)) {
        return std::unexpected(bad_address(url, "lacks the two slashes after the colon"));
    }
    if (!scheme) return open_folder(url, url);
    if (*scheme == "http" || *scheme == "https") {
        return std::unexpected(bad_address(
            url,
            "is a web server's; an S3 server is named by AWS_ENDPOINT_URL, the run by its "
            "bucket"));
    }
    if (*scheme == "file") return open_file_url(url);
    if (*scheme == "s3") return open_bucket(url);
    if (*scheme == "hf") return open_hub_bucket(url);
    return std::unexpected(bad_address(url, "has an unknown scheme"));
}

}  // namespace wisp
