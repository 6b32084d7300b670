// A file on its way into a folder store; without a name, or with a hidden one, until published.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "base/file.hpp"
#include "wisp/store.hpp"

namespace wisp {

/// Names of unfinished files begin so.
inline constexpr std::string_view kTemporaryPrefix = ".wisp-tmp-";

class FolderUpload {
  public:
    /// `folder` must exist.
    static Result<FolderUpload> start(const std::filesystem::path& folder);
    FolderUpload(FolderUpload&& other) noexcept;
    FolderUpload& operator=(FolderUpload&&) = delete;
    ~FolderUpload();

    const FileHandle& handle() const { return handle_; }
    /// Writes and brings to disk.
    Result<void> fill(std::span<const std::byte> bytes);
    /// Takes the name `final_path` whether or not it is taken.
    Result<void> replace(const std::filesystem::path& final_path);
    /// Takes the name `final_path` if it is free.
    Result<Created> link_new(const std::filesystem::path& final_path);

  private:
    explicit FolderUpload(std::filesystem::path folder) : folder_(std::move(folder)) {}
    /// 0 or errno.
    int link_to(const std::filesystem::path& name) const;
    Result<void> give_temporary_name();

    std::filesystem::path folder_;
    FileHandle handle_;
    std::filesystem::path temporary_;
};

/// Creates `folder` and the missing folders above it, each made durable in its parent.
Result<void> make_folders(const std::filesystem::path& folder);

}  // namespace wisp
