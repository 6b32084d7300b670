// Bytes in a file of its own, for code that wants a path; gone with this object.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "wisp/result.hpp"

namespace wisp::python {

class LentFile {
  public:
    /// In the folder for temporary files (TMPDIR). kNoSpace when there is no room.
    static Result<LentFile> holding(std::span<const std::byte> bytes);
    LentFile(LentFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    LentFile& operator=(LentFile&&) = delete;
    ~LentFile();

    const std::string& path() const { return path_; }

  private:
    explicit LentFile(std::string path) : path_(std::move(path)) {}
    std::string path_;
};

}  // namespace wisp::python
