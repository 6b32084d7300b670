// Brings files into the bucket under names made of their hashes, and says what a commit must know.
//
// What is there already is not sent again, so a publish that was interrupted goes on where it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/transfer_tally.hpp"
#include "log/commit.hpp"
#include "log/run_keys.hpp"
#include "wisp/store.hpp"

namespace wisp {

struct UploadCounts {
    std::uint64_t uploaded_bytes = 0;
    std::uint64_t reused_bytes = 0;
};

class Uploader {
  public:
    /// Files larger than `part_bytes` become several objects.
    Uploader(const Location& run, unsigned parallel, std::uint64_t part_bytes,
             Progress progress = {})
        : run_(run),
          parallel_(parallel),
          part_bytes_(part_bytes),
          tally_(std::make_unique<TransferTally>("upload", std::move(progress))) {}

    using NameKey = std::function<std::string(const ObjectName&)>;
    Result<StoredFile> upload(const std::filesystem::path& file, std::string name,
                              const NameKey& name_key, std::uint64_t step, std::uint64_t epoch);
    /// Makes sure, after the commit, that nothing it names was swept away before it counted.
    Result<void> confirm(const StoredFile& file, const std::filesystem::path& path);
    UploadCounts take_counts() { return std::exchange(counts_, {}); }

  private:
    Result<bool> is_there(const StoredPart& part) const;
    Location run_;
    unsigned parallel_;
    std::uint64_t part_bytes_;
    std::unique_ptr<TransferTally> tally_;  // an uploader can be moved, a tally not
    UploadCounts counts_;
};

}  // namespace wisp
