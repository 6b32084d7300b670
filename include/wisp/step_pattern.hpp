// Folders named by the step they hold: "/models/step_{step}", "out/weight_v{step:06}".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "wisp/result.hpp"

namespace wisp {

class StepPattern {
  public:
    /// Whether `path` means a folder per step rather than one folder.
    static bool is_one(std::string_view path);
    /// Exactly one `{step}`, or `{step:0N}` for at least N digits. kInvalid otherwise.
    static Result<StepPattern> parse(std::string_view path);
    /// Folders in `root` whose names end in a number: step_12, checkpoint-500, weight_update_v3.
    static StepPattern any_in(std::filesystem::path root);

    /// The folder in which those of the steps lie.
    const std::filesystem::path& root() const { return root_; }
    /// What lies below the folder of a step, where the pattern names more; else empty.
    const std::filesystem::path& below() const { return below_; }
    /// The name of a step's folder in root().
    std::string name_of(std::uint64_t step) const;
    std::filesystem::path folder_of(std::uint64_t step) const { return root_ / name_of(step); }
    /// The step of a folder in root() that has such a name.
    std::optional<std::uint64_t> step_of(std::string_view name) const;
    /// As it was written.
    std::string text() const { return text_; }

  private:
    StepPattern() = default;
    std::string text_;
    std::filesystem::path root_, below_;
    std::string before_, after_;
    std::size_t digits_ = 1;
    bool any_prefix_ = false;
};

}  // namespace wisp
