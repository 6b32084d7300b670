// The few XML documents S3 speaks. Everything read here is foreign: what is missing or misshapen
// yields nothing, never a guess. No entities beyond XML's own five are expanded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/s3/sigv4.hpp"
#include "wisp/store.hpp"

namespace wisp {

struct S3Problem {
    std::string code;     // "NoSuchKey"
    std::string message;  // foreign text
    std::string region;   // where the bucket lives, if the server says so
};

struct ListPage {
    std::vector<ListedObject> objects;
    bool truncated = false;
    std::string next_token;
};

struct StsAnswer {
    AwsKeys keys;
    std::int64_t expires_ms = 0;
};

/// Nothing unless the document is an <Error> (S3) or an <ErrorResponse> (STS).
std::optional<S3Problem> parse_problem(std::string_view xml);
std::optional<ListPage> parse_list_page(std::string_view xml);
std::optional<std::string> parse_upload_id(std::string_view xml);
/// Whether this is the answer to a completed multipart upload.
bool is_upload_result(std::string_view xml);
std::optional<StsAnswer> parse_sts_answer(std::string_view xml);

/// The body that completes a multipart upload; part numbers count from one.
std::string write_upload_parts(const std::vector<std::string>& etags);

}  // namespace wisp
