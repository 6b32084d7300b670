// Any text as an address: of a server, of where a redirect leads, of a run. What is understood is
// written back to the same address, and holds nothing that could end a line or a request.
#include <cstdlib>

#include "fuzz_input.hpp"
#include "store/store_keys.hpp"
#include "web/http_url.hpp"
#include "wisp/hub.hpp"
#include "wisp/result.hpp"
#include "wisp/store.hpp"

using namespace wisp;

namespace {

/// What an address means must not depend on whose machine this is.
bool clear_environment() {
    ::clearenv();
    ::setenv("AWS_ACCESS_KEY_ID", "id", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "hush-hush", 1);
    ::setenv("HF_S3_ACCESS_KEY_ID", "HFAKid", 1);
    ::setenv("HF_S3_SECRET_ACCESS_KEY", "hush-hush", 1);
    return true;
}

bool same(const Url& one, const Url& other) {
    return one.scheme == other.scheme && one.host == other.host && one.port == other.port &&
           one.path == other.path && one.query == other.query;
}

void check_url(const Result<Url>& url) {
    if (!url) {
        FUZZ_CHECK(url.error().kind == ErrorKind::kInvalid);
        return;
    }
    FUZZ_CHECK(url->scheme == "http" || url->scheme == "https");
    FUZZ_CHECK(!url->host.empty() && url->path.starts_with('/'));
    for (const char c : url->text()) FUZZ_CHECK(static_cast<unsigned char>(c) > ' ' && c != 0x7F);
    FUZZ_CHECK(url->authority().find_first_of("/?#@\\") == std::string::npos);
    const auto again = parse_url(url->text());
    FUZZ_CHECK(again && same(*url, *again));
    FUZZ_CHECK(!(is_loopback(url->host) && is_link_local(url->host)));
}

void check_location(const std::string& text) {
    const auto location = open_location(text);
    if (!location) {
        const ErrorKind kind = location.error().kind;
        FUZZ_CHECK(kind == ErrorKind::kInvalid || kind == ErrorKind::kDenied);
        FUZZ_CHECK(printable(location.error().text) == location.error().text);
        return;
    }
    FUZZ_CHECK(location->store != nullptr && location->url == text);
    FUZZ_CHECK(location->prefix.empty() || check_key(location->prefix));
    const bool told = location->store->label().find("hush-hush") != std::string::npos;
    FUZZ_CHECK(!told || text.find("hush-hush") != std::string::npos);
}

void check_hub(const std::string& text) {
    const auto address = parse_hub_address(text);
    if (!address) return;
    FUZZ_CHECK(address->owner.find('/') == std::string::npos && !address->owner.empty());
    FUZZ_CHECK(address->name.find('/') == std::string::npos && !address->name.empty());
    FUZZ_CHECK(address->prefix.empty() || check_key(address->prefix));
    const auto again = parse_hub_address("hf://buckets/" + address->id() +
                                         (address->prefix.empty() ? "" : "/" + address->prefix));
    FUZZ_CHECK(again && again->owner == address->owner && again->name == address->name &&
               again->prefix == address->prefix);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const bool cleared = clear_environment();
    FUZZ_CHECK(cleared);
    const std::string text(reinterpret_cast<const char*>(data), size);
    check_url(parse_url(text));
    check_url(parse_url(text, "https://bucket.example:8443/a/b?c=d"));
    check_location(text);
    check_hub(text);
    return 0;
}
