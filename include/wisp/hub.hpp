// Buckets of the Hugging Face Hub: hf://buckets/<namespace>/<name>[/prefix].
//
// open_location() reaches them through the Hub's S3 gateway, whose conditional writes make them as
// good as any other store. It wants S3 keys, which the Hub derives from an access token:
//   HF_S3_ACCESS_KEY_ID, HF_S3_SECRET_ACCESS_KEY, else AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
//   else the profile AWS_PROFILE names, else the profile "hf"; those of AWS only if the id begins
//   with HFAK, as the Hub's do: keys for another store are never tried here.
//   HF_S3_ENDPOINT: the gateway, without a namespace; by default https://s3.hf.co, unless
//   HF_ENDPOINT names another Hub than the public one, whose gateway nobody knows.
// With a token alone (HF_TOKEN, or the file HF_TOKEN_PATH, or `token` in HF_HOME) the Hub's own API
// can be used, from Python: see python/wisp/hub.py.
#pragma once

#include <string>
#include <string_view>

#include "wisp/result.hpp"

namespace wisp {

struct HubAddress {
    std::string owner;   // user or organization: the namespace
    std::string name;    // of the bucket
    std::string prefix;  // without a closing '/'; may be empty

    std::string id() const { return owner + "/" + name; }
};

/// kInvalid when it is none, or names a repository instead of a bucket.
Result<HubAddress> parse_hub_address(const std::string& url);

/// What the environment has to offer; nothing is contacted.
struct HubAccess {
    std::string gateway;  // of the S3 path, with its namespace; empty when that cannot be taken
    std::string lacking;  // what it takes to get there, when it cannot
    bool has_token = false;
};

/// kDenied or kInvalid when settings are there but cannot be right, such as half a pair of keys.
Result<HubAccess> hub_access(const HubAddress& address);

/// kInvalid for keys that other stores take and the Hub does not: '\' and parts that end in "..".
Result<void> check_hub_key(std::string_view key);

}  // namespace wisp
