// A folder of this process's own, gone when this is.
#pragma once

#include <filesystem>
#include <string>

#include "wisp/result.hpp"

namespace wisp::cli {

class TemporaryFolder {
  public:
    /// Where TMPDIR says, or /tmp.
    static Result<TemporaryFolder> make(const std::string& lead);
    TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::move(other.path_)) {
        other.path_.clear();
    }
    TemporaryFolder& operator=(TemporaryFolder&&) = delete;
    ~TemporaryFolder();

    const std::filesystem::path& path() const { return path_; }

  private:
    explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
    std::filesystem::path path_;
};

}  // namespace wisp::cli
