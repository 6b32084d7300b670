// Checkpoint folders that somebody else writes, one for each step: which of them are complete.
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
#include <vector>

#include "wisp/control.hpp"
#include "wisp/result.hpp"
#include "wisp/step_pattern.hpp"

namespace wisp {

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
