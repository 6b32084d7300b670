// Gathers encoded blocks and closes them into one sealed safetensors file.
//
// Blocks come in the order of the schema's grid, changed or not. Payload waits in unnamed files
// beside the output, so memory does not grow with it; nothing has a name until commit().
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "base/file.hpp"
#include "codec/encoded_block.hpp"
#include "delta/delta_layout.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"

namespace wisp {

/// A finished delta that has no name yet.
class SealedObject {
  public:
    std::uint64_t payload_bytes = 0;  // the coded streams alone
    std::uint64_t file_bytes = 0;
    Result<void> commit() { return file_.commit(); }
    /// For a file that is gone with the process anyway.
    Result<void> commit_unsynced() { return file_.commit_unsynced(); }

  private:
    friend class DeltaSealer;
    SealedObject(PendingFile file, std::uint64_t payload)
        : payload_bytes(payload), file_bytes(file.size_bytes()), file_(std::move(file)) {}
    PendingFile file_;
};

class DeltaSealer {
  public:
    static Result<std::unique_ptr<DeltaSealer>> create(const std::filesystem::path& output,
                                                       Codec codec, const Schema& schema,
                                                       unsigned log2_block_elements,
                                                       unsigned slices = 0);
    virtual ~DeltaSealer() = default;
    virtual Result<void> add(const EncodedBlock& block) = 0;
    /// Fills in what the sealer counted; the digests and the step come from the caller.
    virtual Result<SealedObject> finish(DeltaFacts& facts) = 0;

  protected:
    explicit DeltaSealer(std::filesystem::path output) : output_(std::move(output)) {}
    /// `data` hands the data section, piece by piece, to the sink it is given.
    using Sink = std::function<Result<void>(std::span<const std::byte>)>;
    Result<SealedObject> write_file(const std::vector<SafetensorsEntry>& entries, Metadata metadata,
                                    std::uint64_t payload_bytes,
                                    const std::function<Result<void>(const Sink&)>& data);
    std::filesystem::path output_;
};

/// The metadata every wisp delta carries, seal still open.
Metadata sealed_metadata(const DeltaFacts& facts);

}  // namespace wisp
