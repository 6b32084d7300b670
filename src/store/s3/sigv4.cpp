#include "store/s3/sigv4.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"

namespace wisp {
namespace {

bool is_unreserved(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

std::string hmac(std::string_view key, std::string_view text) {
    const Sha256Digest mac = hmac_sha256(as_bytes(key), as_bytes(text));
    return std::string(reinterpret_cast<const char*>(mac.data()), mac.size());
}

/// Trimmed, with inner runs of blanks as one.
std::string folded(std::string_view value) {
    std::string out;
    for (const char c : value) {
        const bool blank = c == ' ' || c == '\t';
        if (!blank) {
            out += c;
        } else if (!out.empty() && out.back() != ' ') {
            out += ' ';
        }
    }
    if (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
}

std::string lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return out;
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

std::string percent_encoded(std::string_view text, bool keep_slashes) {
    std::string out;
    for (const char c : text) {
        if (is_unreserved(c) || (keep_slashes && c == '/')) {
            out += c;
        } else {
            out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        }
    }
    return out;
}

std::string percent_decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool whole = text[i] == '%' && i + 2 < text.size();
        const int high = whole ? hex_digit(text[i + 1]) : -1;
        const int low = whole ? hex_digit(text[i + 2]) : -1;
        if (high < 0 || low < 0) {
            out += text[i];
            continue;
        }
        out += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return out;
}

std::string canonical_query(const NamedValues& query) {
    NamedValues encoded;
    for (const auto& [name, value] : query) {
        encoded.emplace_back(percent_encoded(name, false), percent_encoded(value, false));
    }
    std::ranges::sort(encoded);
    std::string out;
    for (const auto& [name, value] : encoded) {
        if (!out.empty()) out += '&';
        out += name;
        out += '=';
        out += value;
    }
    return out;
}

std::string amz_date_of(std::int64_t ms) {
    using namespace std::chrono;
    const sys_seconds when{seconds(ms / 1000)};
    const auto day = floor<days>(when);
    const year_month_day date{day};
    const hh_mm_ss time{when - day};
    return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", static_cast<int>(date.year()),
                       static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                       time.hours().count(), time.minutes().count(), time.seconds().count());
}

RequestSignature sign_v4(const SignableRequest& request, const AwsKeys& keys,
                         const SigningScope& scope) {
    std::map<std::string, std::string> headers;
    for (const auto& [name, value] : request.headers) {
        const auto [at, first] = headers.try_emplace(lower(name), folded(value));
        if (!first) at->second += "," + folded(value);
    }
    std::string header_lines;
    std::string signed_names;
    for (const auto& [name, value] : headers) {
        header_lines += name + ":" + value + "\n";
        signed_names += (signed_names.empty() ? "" : ";") + name;
    }
    RequestSignature signature;
    signature.canonical_request = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method,
                                              request.path, canonical_query(request.query),
                                              header_lines, signed_names, request.payload_sha256);
    const std::string day = scope.amz_date.substr(0, 8);
    const std::string credential_scope =
        fmt::format("{}/{}/{}/aws4_request", day, scope.region, scope.service);
    signature.string_to_sign =
        fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", scope.amz_date, credential_scope,
                    to_hex(sha256(as_bytes(signature.canonical_request))));
    const std::string day_key = hmac("AWS4" + keys.secret_access_key, day);
    const std::string service_key = hmac(hmac(day_key, scope.region), scope.service);
    signature.hex =
        to_hex(std::string_view(hmac(hmac(service_key, "aws4_request"), signature.string_to_sign)));
    signature.authorization =
        fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                    keys.access_key_id, credential_scope, signed_names, signature.hex);
    return signature;
}

}  // namespace wisp
