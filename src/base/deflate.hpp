// zlib streams (RFC 1950) of small metadata, with the unpacked size known and held to.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "wisp/result.hpp"

namespace wisp {

Result<Bytes> deflate_bytes(std::span<const std::byte> plain);

/// kCorrupt unless the stream unpacks to exactly `plain_size` bytes and ends where `packed` ends.
/// The caller has held `plain_size` against a limit.
Result<Bytes> inflate_bytes(std::span<const std::byte> packed, std::uint64_t plain_size);

}  // namespace wisp
