// Objects as files under a folder: key "a/b" is the file a/b. Thread-safe, and safe beside any
// number of other processes with the same folder, on one machine or over NFS.
//
// An object gets its name only when all of its bytes are on disk, and an answer is given only when
// the name is too: create() by link(2), which never replaces, put() by rename(2), which always
// does. What is not finished has no name, or on file systems without unnamed files a hidden one
// that starts with ".wisp-tmp-": such names are never listed and refused as keys; list() removes
// those that are older than a day. Unlike a bucket, a folder cannot hold both "a" and "a/b"
// (kInvalid), nor parts over 255 bytes. Symbolic links are followed where they lead; empty folders
// stay. A list beside a put that replaces may miss the replaced key: some file systems move its
// entry behind the reader.
#pragma once

#include <filesystem>

#include "wisp/store.hpp"

namespace wisp {

class FolderStore : public Store {
  public:
    /// `home`: the prefix this process works under, where it may be allowed to write.
    explicit FolderStore(std::filesystem::path root, std::string home = {});

    std::string label() const override;
    std::string bucket() const override { return "folder " + root_.string(); }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override;
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override;
    Result<ObjectInfo> head(const std::string& key) override;
    Result<void> remove(const std::string& key) override;
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override;
    /// The file system's clock, which is the server's on NFS; this machine's where we may not
    /// write.
    Result<std::int64_t> now_ms() override;

    /// Removes folders under `prefix` that hold nothing, and the one it names.
    void remove_empty_folders(const std::string& prefix);

  private:
    Result<std::filesystem::path> path_of(const std::string& key) const;

    std::filesystem::path root_;
    std::string home_;
};

}  // namespace wisp
