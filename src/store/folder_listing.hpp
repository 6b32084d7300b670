// Walking a folder store in the order of its keys' bytes, only where the keys asked for can be.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "wisp/store.hpp"

namespace wisp {

class FolderListing {
  public:
    /// `on_leftover` is told of every unfinished file that is met.
    FolderListing(std::filesystem::path root, std::string prefix, std::string after,
                  std::size_t limit, std::function<void(const std::filesystem::path&)> on_leftover);
    Result<std::vector<ListedObject>> run();

  private:
    struct Entry {
        std::string name;  // a folder's ends in '/', as it does inside a key
        bool is_folder = false;
    };
    /// `folder_key` is empty or ends in '/'.
    Result<void> walk(const std::string& folder_key);
    Result<std::vector<Entry>> entries_of(const std::string& folder_key);
    bool may_hold_wanted(const std::string& folder_key) const;
    void take_file(const std::string& key);

    std::filesystem::path root_;
    std::string prefix_;
    std::string after_;
    std::size_t limit_;
    std::function<void(const std::filesystem::path&)> on_leftover_;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> above_;  // device and inode, against loops
    std::vector<ListedObject> listed_;
};

}  // namespace wisp
