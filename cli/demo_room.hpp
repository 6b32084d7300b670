// Whether a machine has room for a demo, and where its files go.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "wisp/wisp.hpp"

namespace wisp::cli {

struct DemoSize {
    unsigned layers = 0;
    unsigned followers = 0;
    std::uint64_t steps = 0;
    bool own_bucket = true;  // in the demo's folder
};

struct DemoNeeds {
    std::uint64_t model_bytes = 0;
    std::uint64_t memory_bytes = 0;
    std::uint64_t disk_bytes = 0;
};
DemoNeeds needs_of(const DemoSize& size);

/// The folder of a demo. Unless it is kept, what the demo put there goes when this does.
class DemoFolder {
  public:
    /// `wanted` is made, or must be empty; when it is "", a temporary folder where there is room:
    /// in memory if there is plenty and nothing is to be kept. kNoSpace, kUnavailable: no room, and
    /// what would fit.
    static Result<DemoFolder> make(const std::filesystem::path& wanted, const DemoSize& size,
                                   bool keep);
    DemoFolder(DemoFolder&& other) noexcept;
    DemoFolder& operator=(DemoFolder&&) = delete;
    ~DemoFolder();
    const std::filesystem::path& path() const { return path_; }
    /// It stays, with nothing but what is named.
    void keep_only(const std::string& name);

  private:
    DemoFolder(std::filesystem::path path, bool made) : path_(std::move(path)), made_(made) {}
    std::filesystem::path path_;
    bool made_ = false;
    bool kept_ = false;
};

}  // namespace wisp::cli
