// Every size that comes from outside is held against one of these before memory is taken for it.
#pragma once

#include <cstdint>

namespace wisp::limits {

inline constexpr std::uint64_t kSafetensorsHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr std::uint64_t kIndexJsonBytes = 100'000'000;
inline constexpr std::uint64_t kTensorCount = 1'000'000;
inline constexpr std::uint64_t kTensorNameBytes = 4096;
inline constexpr std::uint64_t kTensorRank = 64;
inline constexpr std::uint64_t kDirectoryBytes = 1'000'000'000;
inline constexpr std::uint64_t kCommitBytes = 1 << 20;
inline constexpr std::uint64_t kPartsPerFile = 10'000;
inline constexpr std::uint64_t kFilesPerAnchor = 10'000;
inline constexpr std::uint64_t kInterleaveSegments = 100'000;
inline constexpr std::uint64_t kInterleaveExtents = 10'000'000;
inline constexpr std::uint64_t kShardManifestBytes = 1 << 30;
inline constexpr std::uint64_t kManifestEntries = 4096;
inline constexpr std::uint64_t kAncestors = 16;
inline constexpr std::uint64_t kRootKeys = 64;
inline constexpr std::uint64_t kSmallRecordBytes = 1 << 16;
inline constexpr std::uint64_t kChangeBufferBytes = std::uint64_t{128} << 20;
inline constexpr unsigned kJsonDepth = 8;
inline constexpr unsigned kMinLog2BlockElements = 6;
inline constexpr unsigned kMaxLog2BlockElements = 24;
inline constexpr unsigned kSlices = 64;
inline constexpr std::uint64_t kDeltaHeadBytes = std::uint64_t{1} << 30;
inline constexpr unsigned kMaxThreads = 1024;

}  // namespace wisp::limits
