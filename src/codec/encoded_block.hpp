// What encoders give to sealers: one block of one tensor in the bytes of its codec.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.hpp"

namespace wisp {

struct EncodedBlock {
    std::size_t tensor = 0;
    std::uint64_t changed_elements = 0;
    Bytes coded;             // compact and swift: the block; plain and gap: indices or uint32 gaps
    Bytes values;            // plain and gap only
    bool wide_gaps = false;  // gap: some gap does not fit 16 bits
    /// Of a sliced delta: how many bytes of `coded` each tile of the block has, by bands and
    /// strips.
    std::vector<std::uint64_t> tile_bytes;
};

}  // namespace wisp
