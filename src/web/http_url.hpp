// Addresses on the web, taken apart by libcurl's own parser so that both read them alike.
#pragma once

#include <string>
#include <string_view>

#include "wisp/result.hpp"

namespace wisp {

/// A URL taken apart; the path is encoded, the query is without its '?'.
struct Url {
    std::string scheme;
    std::string host;  // with brackets around IPv6
    std::string port;  // empty when it is the scheme's own
    std::string path;
    std::string query;

    /// As in the Host header.
    std::string authority() const { return port.empty() ? host : host + ":" + port; }
    std::string origin() const { return scheme + "://" + authority(); }
    std::string text() const { return origin() + path + (query.empty() ? "" : "?" + query); }
};

/// http and https only; `base` resolves relative ones. kInvalid also when it holds a user name or a
/// password: those belong elsewhere. The text of the error never repeats the URL.
Result<Url> parse_url(const std::string& text, const std::string& base = {});

/// Whether `host` is a literal address of this machine or its link, or "localhost".
bool is_loopback(std::string_view host);
bool is_link_local(std::string_view host);

}  // namespace wisp
