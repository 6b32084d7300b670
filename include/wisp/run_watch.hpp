// The newest state of a run, watched by whoever holds no weights.
//
// Failure kinds are those of wisp/run.hpp. Used from one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "wisp/run.hpp"

namespace wisp {

class RunWatch {
  public:
    /// kNoRun when there is none.
    static Result<RunWatch> open(const Location& where, const RunOptions& options);
    RunWatch(RunWatch&&) noexcept;
    RunWatch& operator=(RunWatch&&) noexcept;
    ~RunWatch();

    const std::string& run() const;
    /// The newest commit, and with it the step and the state that the run stands at; nothing when
    /// no state was published yet. One request when nothing is new. With `until`, the newest commit
    /// that stands at that step or before it: kGap when the log no longer reaches back so far.
    Result<std::optional<CommitSummary>> newest(std::optional<std::uint64_t> until = std::nullopt);

  private:
    struct State;
    explicit RunWatch(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace wisp
