#include "delta/delta_sealer.hpp"

#include "base/sha256.hpp"
#include "base/try.hpp"
#include "delta/compact_sealer.hpp"
#include "delta/trl_sealer.hpp"

namespace wisp {

Result<std::unique_ptr<DeltaSealer>> DeltaSealer::create(const std::filesystem::path& output,
                                                         Codec codec, const Schema& schema,
                                                         unsigned log2_block_elements,
                                                         unsigned slices) {
    if (holds_blocks(codec)) {
        return CompactSealer::create(output, schema, log2_block_elements, slices);
    }
    return TrlSealer::create(output, codec, schema);
}

Metadata sealed_metadata(const DeltaFacts& facts) {
    return {
        {std::string(kSealKey), std::string(kSealDigits, '0')},
        {std::string(kBaseKey), to_text(facts.base)},
        {std::string(kResultKey), to_text(facts.result)},
        {std::string(kTouchedKey), to_text(facts.touched)},
        {std::string(kSchemaKey), facts.schema_digest},
    };
}

Result<SealedObject> DeltaSealer::write_file(const std::vector<SafetensorsEntry>& entries,
                                             Metadata metadata, std::uint64_t payload_bytes,
                                             const std::function<Result<void>(const Sink&)>& data) {
    WISP_ASSIGN(PendingFile file, PendingFile::create(output_));
    Bytes header = write_safetensors_header(entries, metadata, kSealKey);
    WISP_TRY(file.reserve(header.size() + (entries.empty() ? 0 : entries.back().end)));
    WISP_TRY(file.append(header));
    Sha256 hash;
    WISP_TRY(data([&](std::span<const std::byte> piece) -> Result<void> {
        hash.add(piece);
        return file.append(piece);
    }));
    const std::string seal = seal_text(header, hash.finish());
    WISP_TRY(write_at(file.handle(), kSealOffset, as_bytes(std::string_view(seal)), output_));
    return SealedObject(std::move(file), payload_bytes);
}

}  // namespace wisp
