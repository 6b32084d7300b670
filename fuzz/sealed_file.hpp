// Whole delta files around fuzzed parts: sealed, so that the code behind the seal is reached.
#pragma once

#include <string>
#include <vector>

#include "base/deflate.hpp"
#include "checkpoint/safetensors.hpp"
#include "delta/delta_layout.hpp"
#include "repaired_seal.hpp"

namespace wisp::fuzz {

inline Bytes sealed_file(const std::vector<SafetensorsEntry>& entries, Metadata metadata,
                         std::span<const std::byte> data) {
    metadata[std::string(kSealKey)] = std::string(kSealDigits, '0');
    Bytes file = write_safetensors_header(entries, metadata, kSealKey);
    file.insert(file.end(), data.begin(), data.end());
    repair_seal(file);
    return file;
}

struct StatedDigests {
    StateDigest base;
    StateDigest result;
    StateDigest touched;
    std::string schema;
};

inline Bytes compact_file(std::span<const std::byte> plain_directory,
                          std::span<const std::byte> blocks, const StatedDigests& stated) {
    const Bytes packed = deflate_bytes(plain_directory).value_or(Bytes());
    Bytes data(blocks.begin(), blocks.end());
    data.insert(data.end(), packed.begin(), packed.end());
    const Metadata metadata = {
        {"format", std::string(kDeltaFormat)},
        {"version", std::string(kDeltaVersion)},
        {"codec", "compact"},
        {"step", "7"},
        {std::string(kBaseKey), to_text(stated.base)},
        {std::string(kResultKey), to_text(stated.result)},
        {std::string(kTouchedKey), to_text(stated.touched)},
        {std::string(kSchemaKey), stated.schema},
        {std::string(kDirectorySizeKey), std::to_string(plain_directory.size())}};
    return sealed_file(
        {{{std::string(kBlocksTensor), Dtype::kU8, {blocks.size()}}, 0, blocks.size()},
         {{std::string(kDirectoryTensor), Dtype::kU8, {packed.size()}},
          blocks.size(),
          data.size()}},
        metadata, data);
}

}  // namespace wisp::fuzz
