// The next step beside the one that stands: the files that a delta touches are cloned and written
// to, all others share their bytes with the step before, which is only ever read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/delta.hpp"

namespace wisp {

class SnapshotWriter {
  public:
    /// `before` outlives it; `folder` is empty.
    SnapshotWriter(const Checkpoint& before, std::filesystem::path folder)
        : before_(before), folder_(std::move(folder)), touched_(before.files().size()) {}

    /// Changes that were proven against `before`.
    Result<void> take(const MovedBlock& block);
    /// Brings over the rest of `files`, names in the folder of `before`.
    Result<void> finish(const std::vector<std::string>& files);

  private:
    const Checkpoint& before_;
    std::filesystem::path folder_;
    std::vector<std::optional<FileHandle>> touched_;  // by file of `before`
    Bytes buffer_;
};

}  // namespace wisp
