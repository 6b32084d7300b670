// Whole delta files: raw bytes, raw bytes under a repaired seal, or a fuzzed directory and blocks
// inside a sound file. What is verified is decoded over a base of zeros.
#include "delta/delta_decoder.hpp"
#include "sealed_file.hpp"
#include "sound_changes.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

constexpr std::uint64_t kMostBytes = 1U << 20;

void decode_all(const VerifiedDelta& delta) {
    std::vector<TensorInfo> tensors;
    for (const DeltaTensor& tensor : delta.tensors()) {
        tensors.push_back(tensor.info);
        if (!tensor.shape_known) {
            if (tensor.last_position >= kMostBytes) return;
            // A packed dtype needs an even count of elements.
            tensors.back().shape = {(tensor.last_position / 64 + 1) * 64};
        }
    }
    const auto schema = Schema::make(std::move(tensors));
    FUZZ_CHECK(schema.has_value() || !delta.tensors().empty());
    if (!schema || schema->total_bytes() > kMostBytes) return;
    const auto bound = BoundDelta::bind(delta, *schema);
    if (!bound) return;
    const unsigned log2 = delta.log2_block_elements() == 0 ? 8 : delta.log2_block_elements();
    const BlockGrid grid(*schema, log2);
    const Bytes zeros(kMostBytes);
    BlockDecoders decoder;
    BlockChanges changes;
    for (std::uint64_t i = 0; i < grid.count(); ++i) {
        const BlockRange range = grid[i];
        const auto old_block = std::span<const std::byte>(zeros).first(
            static_cast<std::size_t>(range.element_count * range.element_bytes));
        if (bound->decode(range, old_block, decoder, changes)) {
            check_sound(changes, old_block, range.element_bytes);
            FUZZ_CHECK(changes.empty() || bound->touches(range));
        }
    }
}

/// Directories name the schema they belong to, which here is just what they list.
std::string schema_of(std::span<const std::byte> file) {
    const auto delta = verify_delta(file, "first look");
    if (!delta) return {};
    std::vector<TensorInfo> tensors;
    for (const DeltaTensor& tensor : delta->tensors()) tensors.push_back(tensor.info);
    const auto schema = Schema::make(std::move(tensors));
    return schema ? schema->digest() : std::string();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzInput in(data, size);
    const std::size_t mode = in.choice(3);
    Bytes file;
    if (mode == 2) {
        const auto directory = in.take(in.number<std::uint16_t>());
        const auto blocks = in.rest();
        StatedDigests stated;
        stated.schema = schema_of(compact_file(directory, blocks, stated));
        file = compact_file(directory, blocks, stated);
    } else {
        const auto rest = in.rest();
        file.assign(rest.begin(), rest.end());
        if (mode == 1) repair_seal(file);
    }
    const auto delta = verify_delta(file, "fuzz");
    if (delta) decode_all(*delta);
    return 0;
}
