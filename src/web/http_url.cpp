#include "web/http_url.hpp"

#include <arpa/inet.h>
#include <curl/curl.h>

#include <memory>

namespace wisp {
namespace {

using Parsed = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

/// Empty when the part is not there.
std::string part_of(const Parsed& parsed, CURLUPart part) {
    char* text = nullptr;
    if (curl_url_get(parsed.get(), part, &text, 0) != CURLUE_OK) return {};
    std::string out(text);
    curl_free(text);
    return out;
}

std::string_view without_brackets(std::string_view host) {
    if (host.starts_with('[') && host.ends_with(']')) return host.substr(1, host.size() - 2);
    return host;
}

bool parse_v4(std::string_view host, unsigned char (&bytes)[4]) {
    return inet_pton(AF_INET, std::string(host).c_str(), bytes) == 1;
}

bool parse_v6(std::string_view host, unsigned char (&bytes)[16]) {
    return inet_pton(AF_INET6, std::string(without_brackets(host)).c_str(), bytes) == 1;
}

}  // namespace

Result<Url> parse_url(const std::string& text, const std::string& base) {
    const Parsed parsed(curl_url(), &curl_url_cleanup);
    constexpr unsigned kFlags = CURLU_PATH_AS_IS;
    // libcurl would stop reading at a zero.
    const bool whole = text.find('\0') == std::string::npos;
    const bool read =
        parsed != nullptr && whole &&
        (base.empty() || curl_url_set(parsed.get(), CURLUPART_URL, base.c_str(), kFlags) == 0) &&
        curl_url_set(parsed.get(), CURLUPART_URL, text.c_str(), kFlags) == 0;
    if (!read) return fail(ErrorKind::kInvalid, "not an address of the form https://host[:port]");
    Url url;
    url.scheme = part_of(parsed, CURLUPART_SCHEME);
    url.host = part_of(parsed, CURLUPART_HOST);
    url.port = part_of(parsed, CURLUPART_PORT);
    url.path = part_of(parsed, CURLUPART_PATH);
    url.query = part_of(parsed, CURLUPART_QUERY);
    if (url.scheme != "http" && url.scheme != "https") {
        return fail(ErrorKind::kInvalid, "an address must start with https:// or http://");
    }
    if (!part_of(parsed, CURLUPART_USER).empty() || !part_of(parsed, CURLUPART_PASSWORD).empty()) {
        return fail(ErrorKind::kInvalid, "an address must not hold a user name or a password");
    }
    // Parsed again, as by anyone who is given its text, it would be another host.
    if (url.host.find('%') != std::string::npos) {
        return fail(ErrorKind::kInvalid, "an address must not hold a host with a '%' in its name");
    }
    const bool usual =
        (url.scheme == "http" && url.port == "80") || (url.scheme == "https" && url.port == "443");
    if (usual) url.port.clear();
    if (url.path.empty()) url.path = "/";
    return url;
}

bool is_loopback(std::string_view host) {
    unsigned char v4[4];
    if (parse_v4(host, v4)) return v4[0] == 127;
    unsigned char v6[16];
    if (parse_v6(host, v6)) return IN6_IS_ADDR_LOOPBACK(reinterpret_cast<const in6_addr*>(v6));
    return host == "localhost";
}

bool is_link_local(std::string_view host) {
    unsigned char v4[4];
    if (parse_v4(host, v4)) return v4[0] == 169 && v4[1] == 254;
    unsigned char v6[16];
    if (!parse_v6(host, v6)) return false;
    // fd00:ec2::/32 is where AWS puts its metadata services.
    const bool of_aws = v6[0] == 0xFD && v6[1] == 0x00 && v6[2] == 0x0E && v6[3] == 0xC2;
    return of_aws || (v6[0] == 0xFE && (v6[1] & 0xC0) == 0x80);
}

}  // namespace wisp
