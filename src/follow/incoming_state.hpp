// The checkpoint folder that a replica is to adopt: put together in its scratch from an anchor or a
// base, and taken on by deltas. All of it, or the parts that the replica needs; then the rest of
// the files is holes.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wisp/checkpoint.hpp"
#include "wisp/replica.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// An empty folder in a replica's scratch, for a checkpoint that it is to adopt.
Result<std::filesystem::path> make_incoming(const Replica& replica);

class IncomingState {
  public:
    static Result<IncomingState> make(const Replica& replica, unsigned threads);
    const std::filesystem::path& folder() const { return folder_; }

    /// Copies the files of a checkpoint.
    Result<void> copy(const std::filesystem::path& checkpoint);
    /// Moves a fetched file to its name.
    Result<void> take(const std::filesystem::path& file, const std::string& name);
    /// The same of the header of a file of weights, which are zeros until fill().
    Result<void> take_header(const std::filesystem::path& file, const std::string& name);

    /// All files are there: of these tensors.
    Result<const Schema*> schema();
    /// From here on the parts that are held will do; null: all is needed.
    void need(std::shared_ptr<const HeldSlices> held) { held_ = std::move(held); }
    const HeldSlices* held() const { return held_.get(); }

    /// Fills zeros by a sliced delta from zeros; the state that it says it leads to.
    Result<StateDigest> fill(const std::filesystem::path& delta);
    /// The digest of all of it, read in full.
    Result<StateDigest> digest();
    Result<ApplyReport> apply(const StateDigest& known,
                              const std::vector<std::filesystem::path>& deltas);

  private:
    IncomingState(std::filesystem::path folder, unsigned threads)
        : folder_(std::move(folder)), threads_(threads) {}
    Result<const Checkpoint*> checkpoint();
    std::filesystem::path folder_;
    unsigned threads_;
    std::shared_ptr<const HeldSlices> held_;
    std::optional<Checkpoint> checkpoint_;  // once all files are there
};

}  // namespace wisp
