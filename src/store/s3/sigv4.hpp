// AWS Signature Version 4, as S3 wants it: a pure function of the request, the keys and the time.
//
// The path is taken as it is sent (encoded once, never normalised), which is S3's rule; the query
// is given decoded and is encoded and sorted here, so that what is signed is what is sent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "web/named_values.hpp"

namespace wisp {

/// The keys of one request. The secret and the token never enter a message.
struct AwsKeys {
    std::string access_key_id;
    std::string secret_access_key;
    std::string session_token;  // empty for long-lived keys
};

struct SigningScope {
    std::string region;
    std::string service = "s3";
    std::string amz_date;  // 20150830T123600Z
};

struct SignableRequest {
    std::string method;
    std::string path;     // encoded, starts with '/'
    NamedValues query;    // decoded
    NamedValues headers;  // everything that is to be signed, Host included; repeats are joined
    std::string payload_sha256;
};

struct RequestSignature {
    std::string canonical_request;
    std::string string_to_sign;
    std::string hex;
    std::string authorization;  // the value of the header
};

RequestSignature sign_v4(const SignableRequest& request, const AwsKeys& keys,
                         const SigningScope& scope);

/// Everything but unreserved characters as %XX; '/' stays when asked.
std::string percent_encoded(std::string_view text, bool keep_slashes);

/// The inverse; '+' stays '+'. Broken escapes are kept as they are.
std::string percent_decoded(std::string_view text);

/// "a=1&b=2", encoded and sorted the way it is signed; a value that is empty keeps its '='.
std::string canonical_query(const NamedValues& query);

/// 20150830T123600Z
std::string amz_date_of(std::int64_t ms);

}  // namespace wisp
