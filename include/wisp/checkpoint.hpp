// A checkpoint on disk, opened read-only: one safetensors file, or a Hugging Face folder of them.
//
// Files are memory-mapped; nothing is copied. Everything the format demands is checked on opening
// (doc/format.md section 2). A Checkpoint may be read from any number of threads. The files must
// not be truncated while it is open: a mapped page that vanishes ends the process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "wisp/control.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"
#include "wisp/state.hpp"
#include "wisp/weights.hpp"

namespace wisp {

struct CheckpointFile {
    std::filesystem::path path;
    std::uint64_t size_bytes = 0;
    std::uint64_t data_offset = 0;  // what lies before is the header
};

/// Where a tensor's bytes lie: which file of the checkpoint, and from which byte on.
struct TensorPlace {
    std::size_t file = 0;
    std::uint64_t offset = 0;
    std::uint64_t size_bytes = 0;
};

/// What to do with a checkpoint whose in-place apply was interrupted: it is between two states.
enum class PendingApply { kRefuse, kAllow };

class Checkpoint : public Weights {
  public:
    /// `path` is a .safetensors file, or a folder with model.safetensors.index.json (or, lacking
    /// an index, with exactly one .safetensors file).
    /// kConflict when an in-place apply on it was interrupted, unless that is allowed.
    static Result<Checkpoint> open(const std::filesystem::path& path,
                                   PendingApply pending = PendingApply::kRefuse);

    Checkpoint(Checkpoint&&) noexcept;
    Checkpoint& operator=(Checkpoint&&) noexcept;
    ~Checkpoint() override;

    const std::filesystem::path& path() const;
    bool is_folder() const;
    const Schema& schema() const override;
    /// The files that hold tensors, in ascending order of name.
    const std::vector<CheckpointFile>& files() const;
    const TensorPlace& place(std::size_t tensor) const;
    std::span<const std::byte> bytes(std::size_t tensor) const override;
    std::span<const std::byte> header_bytes(std::size_t file) const;
    /// The `__metadata__` of the first file.
    const std::map<std::string, std::string>& metadata() const;

  private:
    struct State;
    explicit Checkpoint(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

/// One pass over all bytes, at memory speed.
Result<StateDigest> digest_of(const Weights& weights, unsigned threads = 0,
                              const Progress& progress = {});

}  // namespace wisp
