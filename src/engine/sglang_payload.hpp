// What SGLang takes as "serialized named tensors", and what it gives back as "parameters".
//
// SGLang's workers read a pickle of [(name, tensor)]. Ours carries one tensor of bytes, a small
// JSON record for wisp.sglang.load_delta, and names nothing but torch.ByteTensor, which SGLang's
// reader allows. We never read a pickle. The way back is a list of numbers: bytes of JSON again.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace wisp {

/// The name of the tensor, and of the parameter that is asked for.
inline constexpr const char* kSglangName = "wisp";

/// The pickle, in base64.
std::string sglang_payload(const nlohmann::json& record);

/// The record in a list of numbers; nothing when it is anything else.
std::optional<nlohmann::json> sglang_record(const nlohmann::json& parameter);

}  // namespace wisp
