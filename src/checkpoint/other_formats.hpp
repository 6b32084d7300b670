// Files that people take for safetensors: known by their first bytes, so that an error can call
// them by their name and say how they are converted.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace wisp {

struct OtherFormat {
    std::string_view name;  // "a PyTorch file (.pt, .bin)"
    std::string_view cure;  // how to get safetensors out of it
};

/// Nothing when the bytes are of no format that is known here.
std::optional<OtherFormat> recognise_format(std::span<const std::byte> head);

}  // namespace wisp
