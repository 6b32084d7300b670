#include <gtest/gtest.h>

#include <functional>

#include "base/deflate.hpp"
#include "delta/delta_directory.hpp"
#include "expect_result.hpp"

namespace wisp::testing {
namespace {

DirectoryTensor listed(TensorInfo info, std::uint64_t changed, std::vector<std::uint64_t> blocks) {
    DirectoryTensor tensor;
    tensor.info = std::move(info);
    tensor.changed_elements = changed;
    tensor.block_bytes = std::move(blocks);
    return tensor;
}

DeltaDirectory example() {
    DeltaDirectory directory;
    directory.log2_block_elements = 6;
    directory.tensors = {listed({"model.0.weight", Dtype::kBf16, {10, 13}}, 7, {5, 0, 9}),
                         listed({"model.0.weight2", Dtype::kF32, {64}}, 64, {300}),
                         listed({"model.1", Dtype::kI64, {}}, 1, {20}),
                         listed({"ä", Dtype::kF4, {130}}, 2, {3, 4})};
    return directory;
}

/// The plain bytes of one tensor, each field of which a test may spoil.
struct Plain {
    std::uint64_t log2 = 6;
    std::uint64_t count = 1;
    std::uint64_t shared = 0;
    std::string name = "w";
    std::uint64_t dtype = 14;
    std::vector<std::uint64_t> shape = {100};
    std::uint64_t changed = 2;
    std::vector<std::uint64_t> blocks = {25, 0};
    Bytes behind;

    Bytes bytes() const {
        Bytes out;
        append_varint(out, log2);
        append_varint(out, count);
        append_varint(out, shared);
        append_varint(out, name.size());
        append_text(out, name);
        append_varint(out, dtype);
        append_varint(out, shape.size());
        for (const std::uint64_t extent : shape) append_varint(out, extent);
        append_varint(out, changed);
        for (const std::uint64_t block : blocks) append_varint(out, block);
        out.insert(out.end(), behind.begin(), behind.end());
        return out;
    }
};

Result<DeltaDirectory> parse(const Bytes& plain, std::uint64_t blocks_bytes) {
    return parse_directory(value_of(deflate_bytes(plain)), plain.size(), blocks_bytes);
}

std::string outcome_with(const std::function<void(Plain&)>& spoil) {
    Plain plain;
    spoil(plain);
    return outcome_of(parse(plain.bytes(), 25));
}

TEST(DeltaDirectory, ReadsBackWhatWasWritten) {
    const DeltaDirectory directory = example();
    const PackedDirectory packed = value_of(write_directory(directory));
    const DeltaDirectory back =
        value_of(parse_directory(packed.bytes, packed.plain_bytes, 5 + 9 + 300 + 20 + 3 + 4));
    EXPECT_EQ(back.log2_block_elements, 6U);
    ASSERT_EQ(back.tensors.size(), directory.tensors.size());
    for (std::size_t i = 0; i < back.tensors.size(); ++i) {
        EXPECT_EQ(back.tensors[i].info, directory.tensors[i].info);
        EXPECT_EQ(back.tensors[i].changed_elements, directory.tensors[i].changed_elements);
        EXPECT_EQ(back.tensors[i].block_bytes, directory.tensors[i].block_bytes);
    }
}

TEST(DeltaDirectory, MayBeEmpty) {
    DeltaDirectory directory;
    directory.log2_block_elements = 20;
    const PackedDirectory packed = value_of(write_directory(directory));
    EXPECT_TRUE(value_of(parse_directory(packed.bytes, packed.plain_bytes, 0)).tensors.empty());
    EXPECT_EQ(outcome_of(parse_directory(packed.bytes, packed.plain_bytes, 1)), "corrupt");
}

TEST(DeltaDirectory, RejectsEachBrokenRule) {
    ASSERT_EQ(outcome_with([](Plain&) {}), "ok");
    const std::vector<std::pair<const char*, std::function<void(Plain&)>>> cases = {
        {"block size below 6", [](Plain& p) { p.log2 = 5; }},
        {"block size above 24", [](Plain& p) { p.log2 = 25; }},
        {"huge block size", [](Plain& p) { p.log2 = ~0ULL; }},
        {"too many tensors", [](Plain& p) { p.count = 1'000'001; }},
        {"more tensors than listed", [](Plain& p) { p.count = 2; }},
        {"fewer tensors than listed", [](Plain& p) { p.count = 0; }},
        {"shares more than there is", [](Plain& p) { p.shared = 1; }},
        {"name too long", [](Plain& p) { p.name = std::string(4097, 'x'); }},
        {"name not UTF-8", [](Plain& p) { p.name = "\xFF"; }},
        {"rank above 64", [](Plain& p) { p.shape.assign(65, 1); }},
        {"shape overflows", [](Plain& p) { p.shape = {1ULL << 40, 1ULL << 40}; }},
        {"half a byte", [](Plain& p) { p.dtype = 1, p.shape = {101}; }},
        {"no change", [](Plain& p) { p.changed = 0; }},
        {"more changes than elements", [](Plain& p) { p.changed = 101; }},
        {"no elements", [](Plain& p) { p.shape = {0}, p.blocks = {}; }},
        {"blocks missing", [](Plain& p) { p.blocks = {25}; }},
        {"blocks too many", [](Plain& p) { p.blocks = {25, 0, 0}; }},
        {"block sizes too small", [](Plain& p) { p.blocks = {24, 0}; }},
        {"block sizes too large", [](Plain& p) { p.blocks = {25, 1}; }},
        {"block sizes overflow", [](Plain& p) { p.blocks = {~0ULL, 26}; }},
        {"bytes behind", [](Plain& p) { p.behind = {std::byte{0}}; }},
        {"absurd block count", [](Plain& p) { p.shape = {1ULL << 50}; }},
    };
    for (const auto& [why, spoil] : cases) EXPECT_EQ(outcome_with(spoil), "corrupt") << why;
}

TEST(DeltaDirectory, RefusesAnUnknownDtypeAsUnsupported) {
    EXPECT_EQ(outcome_with([](Plain& p) { p.dtype = 22; }), "unsupported");
    EXPECT_EQ(outcome_with([](Plain& p) { p.dtype = ~0ULL; }), "unsupported");
}

TEST(DeltaDirectory, OfASlicedDeltaListsTilesAndTheirHashes) {
    DeltaDirectory directory;
    directory.log2_block_elements = 8;
    directory.slices = 2;
    DirectoryTensor whole = listed({"a", Dtype::kBf16, {100}}, 3, {30});
    whole.cut = {8, 1};
    DirectoryTensor strips = listed({"b", Dtype::kBf16, {20, 16}}, 9, {20, 0, 40, 50});
    strips.cut = {8, 2};
    DirectoryTensor bands = listed({"c", Dtype::kBf16, {20, 16}}, 9, {60, 70, 0, 80, 90});
    bands.cut = {6, 1};
    directory.tensors = {whole, strips, bands};
    for (DirectoryTensor& tensor : directory.tensors) {
        for (const std::uint64_t bytes : tensor.block_bytes) {
            tensor.hashes.emplace_back();
            if (bytes > 0) tensor.hashes.back().fill(static_cast<std::byte>(bytes));
        }
    }
    const PackedDirectory packed = value_of(write_directory(directory));
    const DeltaDirectory read = value_of(parse_directory(packed.bytes, packed.plain_bytes, 440, 2));
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(read.tensors[i].cut, directory.tensors[i].cut);
        EXPECT_EQ(read.tensors[i].block_bytes, directory.tensors[i].block_bytes);
        EXPECT_EQ(read.tensors[i].hashes, directory.tensors[i].hashes);
    }
    // What is not cut comes first, then the first slices of all, then the second ones.
    using Offsets = std::vector<std::vector<std::uint64_t>>;
    EXPECT_EQ(tile_offsets(read), (Offsets{{0}, {30, 220, 50, 220}, {90, 150, 220, 270, 350}}));
}

TEST(DeltaDirectory, RejectsNamesThatDoNotAscend) {
    DeltaDirectory directory = example();
    std::swap(directory.tensors[0], directory.tensors[1]);
    PackedDirectory packed = value_of(write_directory(directory));
    EXPECT_EQ(outcome_of(parse_directory(packed.bytes, packed.plain_bytes, 341)), "corrupt");
    directory.tensors = {example().tensors[1], example().tensors[1]};
    packed = value_of(write_directory(directory));
    EXPECT_EQ(outcome_of(parse_directory(packed.bytes, packed.plain_bytes, 600)), "corrupt");
}

TEST(DeltaDirectory, RejectsToEndAnywhereInside) {
    const Bytes plain = Plain().bytes();
    for (std::size_t size = 0; size < plain.size(); ++size) {
        const Bytes cut(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(size));
        EXPECT_EQ(outcome_of(parse(cut, 25)), "corrupt") << size;
    }
}

TEST(DeltaDirectory, RejectsASizeBeyondTheLimits) {
    const PackedDirectory packed = value_of(write_directory(example()));
    for (const std::uint64_t size :
         {std::uint64_t{1'000'000'001}, ~std::uint64_t{0}, std::uint64_t{999'999'999},
          packed.plain_bytes + 1, packed.plain_bytes - 1}) {
        EXPECT_EQ(outcome_of(parse_directory(packed.bytes, size, 341)), "corrupt") << size;
    }
}

}  // namespace
}  // namespace wisp::testing
