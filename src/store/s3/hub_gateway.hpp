// How the environment leads to the S3 gateway of the Hugging Face Hub; see wisp/hub.hpp.
#pragma once

#include <string>
#include <string_view>

#include "store/s3/aws_profile.hpp"
#include "store/s3/s3_settings.hpp"
#include "store/s3/sigv4.hpp"
#include "wisp/hub.hpp"
#include "wisp/result.hpp"
#include "wisp/store.hpp"

namespace wisp {

struct HubGateway {
    std::string endpoint;  // without the namespace; empty: not known
    AwsKeys keys;          // empty: none
    std::string lacking;   // what is missing for the gateway, and how to get it
    bool has_token = false;

    bool ready() const { return !endpoint.empty() && !keys.access_key_id.empty(); }
};

Result<HubGateway> hub_gateway_from(const Environment& environment);

/// The dialect of S3 that the gateway speaks. `gateway` must be ready.
S3Settings hub_settings(const HubAddress& address, const HubGateway& gateway,
                        const Environment& environment);

/// An environment that has these keys and nothing else, for a CredentialChain.
Environment only_keys(const AwsKeys& keys);

/// What followers of a bucket there have to know, and `wisp doctor` says.
StoreTerms hub_terms(const S3Settings& settings);

}  // namespace wisp
