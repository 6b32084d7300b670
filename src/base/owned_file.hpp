// A file that is removed with its owner.
#pragma once

#include <filesystem>
#include <system_error>
#include <utility>

namespace wisp {

class OwnedFile {
  public:
    OwnedFile() = default;
    explicit OwnedFile(std::filesystem::path path) : path_(std::move(path)) {}
    OwnedFile(OwnedFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    OwnedFile& operator=(OwnedFile&& other) noexcept {
        std::swap(path_, other.path_);
        return *this;
    }
    ~OwnedFile() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove(path_, ignored);
    }
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

}  // namespace wisp
