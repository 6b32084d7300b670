// The safetensors container, read and written by its own strict rules: doc/format.md section 2.
//
//   file := u64 header_bytes, header (JSON, padded with spaces), data
//
// Rejected: a header over 100 MB or not starting with '{', duplicate or unknown keys, shapes that
// overflow, offsets with holes, overlaps or another length than dtype and shape say, and files
// longer or shorter than their tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"

namespace wisp {

using Metadata = std::map<std::string, std::string>;

struct SafetensorsEntry {
    TensorInfo info;
    std::uint64_t begin = 0;  // relative to the data
    std::uint64_t end = 0;
};

struct SafetensorsHeader {
    std::vector<SafetensorsEntry> entries;  // in the order of their data
    Metadata metadata;
    std::uint64_t data_offset = 0;  // from the start of the file

    const SafetensorsEntry* find(std::string_view name) const;
};

/// `label` names the file in errors. kCorrupt for what breaks a rule, kUnsupported for dtypes of
/// the future.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                            std::string_view label);
/// The same with only the beginning at hand: `head` of a file of `file_bytes`, which is not less;
/// without that, of one that is as long as its tensors need.
Result<SafetensorsHeader> parse_safetensors_head(std::span<const std::byte> head,
                                                 std::optional<std::uint64_t> file_bytes,
                                                 std::string_view label);

/// Length, JSON and padding to a multiple of 8. `first_key` of the metadata is written first, the
/// others in ascending order. Names and metadata must be valid UTF-8.
Bytes write_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const Metadata& metadata, std::string_view first_key = {});

}  // namespace wisp
