// What the environment says about a bucket: where it is and how to speak to it. No secrets.
#pragma once

#include <cstdint>
#include <string>

#include "store/s3/aws_profile.hpp"
#include "web/http_url.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct S3Settings {
    std::string bucket;
    std::string endpoint;  // empty: AWS itself
    /// As hf://buckets/namespace/name: this is the gateway of the Hugging Face Hub, which answers
    /// reads with redirects, counts requests, and takes fewer keys. Empty: any other store.
    std::string hub;
    std::uint32_t poll_ms = 0;  // as in StoreTerms
    std::string region = "us-east-1";
    std::string ca_bundle;
    std::uint64_t multipart_above_bytes = std::uint64_t{64} << 20;
    std::uint64_t part_bytes = std::uint64_t{32} << 20;
    unsigned parallel_parts = 4;
    Milliseconds connect_timeout{10'000};
    Milliseconds stall_timeout{30'000};

    /// Where objects of the bucket lie in that region: scheme, host, and the path up to and
    /// without the slash before the key.
    Url bucket_url(const std::string& in_region) const;
    bool is_hub() const { return !hub.empty(); }
    /// For messages: the bucket, and the endpoint where it is not AWS.
    std::string label() const;
};

/// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION, AWS_CA_BUNDLE, then the
/// profile. kInvalid for names that are none.
Result<S3Settings> s3_settings_from(const Environment& environment, const std::string& bucket);

}  // namespace wisp
