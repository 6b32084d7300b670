// A folder being filled beside its final place; removed unless committed.
#pragma once

#include <filesystem>

#include "wisp/result.hpp"

namespace wisp {

class PendingFolder {
  public:
    /// kInvalid when there is something at `final_path` already.
    static Result<PendingFolder> create(const std::filesystem::path& final_path);
    /// One that never gets a name: in `parent`, or among the temporary files when that is empty.
    static Result<PendingFolder> temporary(const std::filesystem::path& parent);
    PendingFolder(PendingFolder&& other) noexcept;
    ~PendingFolder();
    const std::filesystem::path& path() const { return temporary_; }
    Result<void> commit();

  private:
    PendingFolder(std::filesystem::path temporary, std::filesystem::path final_path)
        : temporary_(std::move(temporary)), final_(std::move(final_path)) {}
    static Result<PendingFolder> make(std::string pattern, std::filesystem::path final_path);
    std::filesystem::path temporary_;
    std::filesystem::path final_;
};

}  // namespace wisp
