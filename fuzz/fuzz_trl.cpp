// TRL's plain and gap files put together from the input; block by block they must decode to the
// same changes as in one piece.
#include "delta/delta_decoder.hpp"
#include "sealed_file.hpp"
#include "sound_changes.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

constexpr std::uint64_t kElements = 1U << 12;

struct TrlFile {
    std::vector<SafetensorsEntry> entries;
    Bytes data;

    void add(std::string name, Dtype dtype, std::uint64_t count, FuzzInput& in) {
        const std::uint64_t begin = data.size();
        const std::size_t bytes = static_cast<std::size_t>(count) * traits_of(dtype).bits / 8;
        const auto given = in.take(bytes);
        data.insert(data.end(), given.begin(), given.end());
        data.resize(static_cast<std::size_t>(begin) + bytes);
        entries.push_back({{std::move(name), dtype, {count}}, begin, data.size()});
    }
};

Metadata metadata_from(FuzzInput& in) {
    switch (in.choice(4)) {
        case 0: return {};
        case 1:
            return {
                {"format", "sparse_weight_patch"}, {"sparse", "True"}, {"encoding", "gap_delta"}};
        case 2: return {{"format", "sparse_weight_patch"}, {"sparse", "True"}, {"encoding", "raw"}};
        default: return {{"format", "sparse_weight_patch"}, {"sparse", "True"}};
    }
}

BlockChanges decode_in_blocks(const BoundDelta& bound, const BlockGrid& grid,
                              const Bytes& old_tensor, std::size_t tensor) {
    BlockDecoders decoder;
    BlockChanges all;
    for (std::uint64_t i = 0; i < grid.count(); ++i) {
        const BlockRange range = grid[i];
        if (range.tensor != tensor) continue;
        BlockChanges part;
        const auto old_block = range.of(old_tensor);
        FUZZ_CHECK(bound.decode(range, old_block, decoder, part).has_value());
        check_sound(part, old_block, range.element_bytes);
        all.element_bytes = part.element_bytes;
        for (const std::uint32_t position : part.positions) {
            all.positions.push_back(position + static_cast<std::uint32_t>(range.first_element));
        }
        all.old_bits.insert(all.old_bits.end(), part.old_bits.begin(), part.old_bits.end());
        all.new_bits.insert(all.new_bits.end(), part.new_bits.begin(), part.new_bits.end());
    }
    return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzInput in(data, size);
    const Metadata metadata = metadata_from(in);
    const bool sealed = in.choice(4) == 0;
    constexpr std::array kPositions = {Dtype::kI32, Dtype::kI64, Dtype::kU16,
                                       Dtype::kU32, Dtype::kU16, Dtype::kU8};
    TrlFile parts;
    std::vector<TensorInfo> tensors;
    for (std::size_t i = 0, count = 1 + in.choice(3); i < count; ++i) {
        const std::string name(1, static_cast<char>('a' + i));
        const bool gap = in.choice(2) == 0;
        const Dtype values = in.dtype();
        const std::uint64_t changes = in.choice(40) * 4;
        parts.add(name + (gap ? ".idx" : ".indices"), kPositions[in.choice(kPositions.size())],
                  changes, in);
        if (in.choice(32) != 0) parts.add(name + (gap ? ".val" : ".values"), values, changes, in);
        tensors.push_back({name, values, {kElements}});
    }
    const Schema schema = Schema::make(std::move(tensors)).value();
    Bytes file;
    if (sealed) {
        Metadata full = metadata;
        for (const auto key : {kBaseKey, kResultKey, kTouchedKey}) {
            full[std::string(key)] = to_text(StateDigest{});
        }
        full[std::string(kSchemaKey)] = schema.digest();
        file = sealed_file(parts.entries, full, parts.data);
    } else {
        file = write_safetensors_header(parts.entries, metadata);
        file.insert(file.end(), parts.data.begin(), parts.data.end());
    }
    const auto delta = verify_delta(file, "fuzz");
    if (!delta) return 0;
    const auto bound = BoundDelta::bind(*delta, schema);
    if (!bound) return 0;
    const Bytes zeros(kElements * 8);
    for (std::size_t i = 0; i < schema.tensors().size(); ++i) {
        FUZZ_CHECK(decode_in_blocks(*bound, BlockGrid(schema, 6), zeros, i) ==
                   decode_in_blocks(*bound, BlockGrid(schema, 20), zeros, i));
    }
    return 0;
}
