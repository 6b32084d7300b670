// Reading what `wisp follow` keeps in a folder, without a step in between.
//
// While a FolderReading lives, the folder is at one step: a follower that keeps it in place waits
// with the next one, and one that makes a folder per step does not remove it. Followers say so when
// a reader keeps them waiting for long. The lock ends with the process, however that ends; a child
// made by fork() does not hold it.
#pragma once

#include <filesystem>
#include <memory>

#include "wisp/control.hpp"
#include "wisp/replica.hpp"

namespace wisp {

class FolderReading {
  public:
    /// `folder` is one that a follower keeps in place, one of its steps, the link `current`, or the
    /// folder that they lie in. Waits while it is written to. kNotFound: it holds no step yet.
    /// kInvalid: wisp does not keep it. kConflict: a change of it was interrupted, and its follower
    /// has to finish that first. kUnavailable: not within `patience`.
    static Result<FolderReading> begin(const std::filesystem::path& folder, Milliseconds patience);
    FolderReading(FolderReading&&) noexcept;
    FolderReading& operator=(FolderReading&&) noexcept;
    ~FolderReading();

    /// Where to read: links are resolved, so that it stays the same step.
    const std::filesystem::path& folder() const;
    const ReplicaRecord& at() const;
    /// A program that replaces this process goes on holding the lock.
    void keep_across_exec() const;

  private:
    struct State;
    explicit FolderReading(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace wisp
