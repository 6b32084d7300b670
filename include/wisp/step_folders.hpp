// A folder for each step: how such folders are named, and which of those that somebody else writes
// are complete.
//
// A folder is complete when the file that its writer puts there last is in it; where there is no
// such file, when nothing in it has changed for a while. Folders are handed out in order of their
// steps. Used from one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {

/// Names of such folders: "/models/step_{step}", "out/weight_v{step:06}".
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

struct FolderWatchOptions {
    /// The file that says so: STABLE, trainer_state.json, .metadata. Empty: there is none.
    std::string ready;
    /// How long nothing may change in a folder without such a file, and in one that is given up.
    Milliseconds quiet = Milliseconds(5'000);
    std::shared_ptr<Clock> clock = system_clock();
};

struct StepFolder {
    std::uint64_t step = 0;
    std::filesystem::path folder;
};

struct FolderLook {
    std::vector<StepFolder> ready;  // in ascending order; none that follows one still being written
    /// Not complete and no longer written to, while a later one is complete; told once each.
    std::vector<StepFolder> passed_over;
    /// The first that is still being written.
    std::optional<StepFolder> unfinished;
};

class FolderWatch {
  public:
    FolderWatch(StepPattern where, FolderWatchOptions options)
        : where_(std::move(where)), options_(std::move(options)) {}

    /// Of the folders after step `past`. kNotFound: the folder that they lie in is not there.
    /// kInvalid: two of them have the same step.
    Result<FolderLook> look(std::optional<std::uint64_t> past);
    /// Not to be handed out again until something changes in it.
    void give_up(const StepFolder& folder);

  private:
    struct Seen {
        std::string content;        // names, sizes and times of its files
        std::int64_t since_ms = 0;  // unchanged, by the clock
        bool told = false;
        bool given_up = false;
    };
    Result<std::map<std::uint64_t, std::filesystem::path>> list() const;
    Seen& see(const std::filesystem::path& folder);
    std::filesystem::path weights_in(const std::filesystem::path& folder) const;
    bool is_marked(const std::filesystem::path& folder) const;
    bool is_quiet(const Seen& seen) const;

    StepPattern where_;
    FolderWatchOptions options_;
    std::map<std::string, Seen> seen_;  // by folder
};

}  // namespace wisp
