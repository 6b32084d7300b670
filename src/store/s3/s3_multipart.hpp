// Uploads in parts: equal parts but the last, several under way at once, aborted on any error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "store/s3/s3_client.hpp"
#include "wisp/result.hpp"

namespace wisp {

/// At least `wanted`, and so large that 10,000 parts hold `size_bytes`.
std::uint64_t part_size_for(std::uint64_t size_bytes, std::uint64_t wanted);

/// Creates or replaces `key`. Visible as a whole once it returns, or not at all.
Result<void> put_in_parts(S3Client& client, const std::string& key,
                          std::span<const std::byte> bytes);

}  // namespace wisp
