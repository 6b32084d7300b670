// Delta files that were changed after they had been sealed, sealed again: so that the code behind
// the seal is reached.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "delta/delta_layout.hpp"

namespace wisp {

/// Writes the right seal into `file` if it has the place for one.
inline void repair_seal(Bytes& file) {
    if (file.size() < kSealOffset + kSealDigits) return;
    const auto header_bytes = load_le<std::uint64_t>(file.data());
    if (header_bytes > file.size() - 8 || header_bytes + 8 < kSealOffset + kSealDigits) return;
    const std::span<const std::byte> all = file;
    const auto data_offset = static_cast<std::size_t>(header_bytes + 8);
    const std::string seal = seal_text(all.first(data_offset), sha256(all.subspan(data_offset)));
    std::memcpy(file.data() + kSealOffset, seal.data(), kSealDigits);
}

}  // namespace wisp
