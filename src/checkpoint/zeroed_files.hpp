// Weights of which only the layout is known: the headers of their files, and zeros for the rest.
#pragma once

#include <filesystem>
#include <span>

#include "base/bytes.hpp"
#include "base/page_memory.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"
#include "wisp/weights.hpp"

namespace wisp {

/// The header of a safetensors file, length included: what make_zeroed() needs of it.
Result<Bytes> read_header(const std::filesystem::path& path);

/// The file holds such a header and nothing else: makes it as long as its tensors need, with a hole
/// where they lie, so that they read as zeros and take no room on disk. kCorrupt when it is another
/// file, kNoSpace when no file can be that long.
Result<void> make_zeroed(const std::filesystem::path& path);

/// A state in which every bit of every tensor is zero.
class ZeroWeights : public Weights {
  public:
    /// The schema must outlive it.
    static Result<ZeroWeights> make(const Schema& schema);
    const Schema& schema() const override { return *schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override;

  private:
    explicit ZeroWeights(const Schema& schema) : schema_(&schema) {}
    const Schema* schema_;
    PageMemory zeros_;  // of the largest tensor; pages that are only read are all the same one
};

}  // namespace wisp
