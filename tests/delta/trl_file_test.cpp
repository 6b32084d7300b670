#include <gtest/gtest.h>

#include "delta/delta_decoder.hpp"
#include "delta/verified_delta.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

template <class T>
Tensor numbers(std::string name, Dtype dtype, const std::vector<T>& values) {
    Tensor tensor{{std::move(name), dtype, {values.size()}}, {}};
    for (const T value : values) append_fixed(tensor.bytes, value);
    return tensor;
}

Tensor plain(const std::vector<std::int32_t>& positions) {
    return numbers("w.indices", Dtype::kI32, positions);
}
Tensor gaps(const std::vector<std::uint16_t>& values) {
    return numbers("w.idx", Dtype::kU16, values);
}
Tensor values(std::string name, std::size_t count) {
    return {{std::move(name), Dtype::kU8, {count}}, Bytes(count, std::byte{7})};
}

const Metadata kTrl = {{"format", "sparse_weight_patch"}, {"version", "1"}, {"sparse", "True"}};

std::string outcome(const std::vector<Tensor>& tensors, const Metadata& metadata = kTrl) {
    return outcome_of(verify_delta(safetensors_file(tensors, metadata), "d"));
}

/// The positions a file changes in a tensor of 16,000 bytes, block by block.
std::vector<std::uint64_t> positions_of(const std::vector<Tensor>& tensors, unsigned log2 = 6) {
    const Bytes file = safetensors_file(tensors, kTrl);
    const VerifiedDelta delta = value_of(verify_delta(file, "d"));
    const Schema schema = value_of(Schema::make({{"w", Dtype::kU8, {16'000}}}));
    const BoundDelta bound = value_of(BoundDelta::bind(delta, schema));
    const BlockGrid grid(schema, log2);
    const Bytes zeros(16'000);
    BlockDecoders decoder;
    BlockChanges changes;
    std::vector<std::uint64_t> positions;
    for (std::uint64_t i = 0; i < grid.count(); ++i) {
        value_of(bound.decode(grid[i], grid[i].of(zeros), decoder, changes));
        for (const std::uint32_t p : changes.positions) {
            positions.push_back(grid[i].first_element + p);
        }
    }
    return positions;
}

TEST(TrlFile, GivesPlainPositionsAsTheyAre) {
    const std::vector<Tensor> file = {plain({0, 63, 64, 15'999}), values("w.values", 4)};
    EXPECT_EQ(positions_of(file), (std::vector<std::uint64_t>{0, 63, 64, 15'999}));
    EXPECT_EQ(positions_of(
                  {numbers<std::int64_t>("w.indices", Dtype::kI64, {5, 6}), values("w.values", 2)}),
              (std::vector<std::uint64_t>{5, 6}));
}

TEST(TrlFile, AddsGapsUp) {
    EXPECT_EQ(positions_of({gaps({0, 0, 3, 100}), values("w.val", 4)}),
              (std::vector<std::uint64_t>{0, 1, 5, 106}));
    EXPECT_EQ(positions_of(
                  {numbers<std::uint32_t>("w.idx", Dtype::kU32, {15'000, 1}), values("w.val", 2)}),
              (std::vector<std::uint64_t>{15'000, 15'002}));
}

TEST(TrlFile, FindsItsPlaceAmongManyGapsFromAnyBlock) {
    const std::vector<Tensor> file = {gaps(std::vector<std::uint16_t>(12'000, 0)),
                                      values("w.val", 12'000)};
    std::vector<std::uint64_t> expected(12'000);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = i;
    for (const unsigned log2 : {6U, 8U, 12U, 13U, 20U})
        EXPECT_EQ(positions_of(file, log2), expected);
}

TEST(TrlFile, LeavesOutWhatDoesNotChange) {
    Tensor same = values("w.values", 2);
    same.bytes[0] = std::byte{0};
    EXPECT_EQ(positions_of({plain({3, 4}), same}), std::vector<std::uint64_t>{4});
}

TEST(TrlFile, IsKnownByItsNamesWhenItLostItsMetadata) {
    EXPECT_EQ(outcome({plain({1}), values("w.values", 1)}, {}), "ok");
    EXPECT_EQ(outcome({gaps({1}), values("w.val", 1)}, {}), "ok");
    EXPECT_EQ(outcome({plain({1}), values("w.values", 1), values("other", 1)}, {}), "invalid");
    EXPECT_EQ(outcome({plain({1}), values("w.val", 1)}, {}), "invalid") << "two codecs' names";
}

TEST(TrlFile, IsOnTrustWithoutASeal) {
    const Bytes file = safetensors_file({plain({1}), values("w.values", 1)}, kTrl);
    EXPECT_FALSE(value_of(verify_delta(file, "d")).sealed());
}

TEST(TrlFile, RejectsPositionsThatDoNotAscend) {
    EXPECT_EQ(outcome({plain({1, 1}), values("w.values", 2)}), "corrupt");
    EXPECT_EQ(outcome({plain({2, 1}), values("w.values", 2)}), "corrupt");
    EXPECT_EQ(outcome({plain({-1}), values("w.values", 1)}), "corrupt");
}

TEST(TrlFile, RejectsPairsThatDoNotMatch) {
    EXPECT_EQ(outcome({plain({1, 2}), values("w.values", 1)}), "corrupt");
    EXPECT_EQ(outcome({plain({1})}), "corrupt");
    EXPECT_EQ(outcome({values("w.values", 1)}), "corrupt");
    EXPECT_EQ(outcome({plain({1}), gaps({1}), values("w.values", 1)}), "corrupt");
    EXPECT_EQ(outcome({plain({1}), values("w.values", 1), values("odd", 1)}), "corrupt");
    Tensor square = values("w.values", 1);
    square.info.shape = {1, 1};
    EXPECT_EQ(outcome({plain({1}), square}), "corrupt");
}

TEST(TrlFile, RefusesCodingsItCannotReadAsUnsupported) {
    Metadata coded = kTrl;
    coded["encoding"] = "nvcomp";
    EXPECT_EQ(outcome({gaps({1}), values("w.val", 1)}, coded), "unsupported");
    EXPECT_EQ(
        outcome({numbers<std::uint16_t>("w.indices", Dtype::kU16, {1}), values("w.values", 1)}),
        "unsupported");
    EXPECT_EQ(outcome({numbers<float>("w.idx", Dtype::kF32, {1}), values("w.val", 1)}),
              "unsupported");
    coded["encoding"] = "raw";
    EXPECT_EQ(
        outcome({numbers<std::int32_t>("w.idx", Dtype::kI32, {1}), values("w.val", 1)}, coded),
        "ok");
}

TEST(TrlFile, IsBoundOnlyToTensorsItFits) {
    const Bytes file = safetensors_file({plain({9}), values("w.values", 1)}, kTrl);
    const VerifiedDelta delta = value_of(verify_delta(file, "d"));
    const auto outcome_for = [&](const TensorInfo& tensor) {
        const Schema schema = value_of(Schema::make({tensor}));
        return outcome_of(BoundDelta::bind(delta, schema));
    };
    EXPECT_EQ(outcome_for({"w", Dtype::kU8, {2, 5}}), "ok");
    EXPECT_EQ(outcome_for({"w", Dtype::kU8, {9}}), "corrupt") << "a position past the end";
    EXPECT_EQ(outcome_for({"w", Dtype::kI8, {10}}), "invalid");
    EXPECT_EQ(outcome_for({"w", Dtype::kBf16, {10}}), "invalid");
    EXPECT_EQ(outcome_for({"v", Dtype::kU8, {10}}), "invalid");
    EXPECT_EQ(outcome_for({"w", Dtype::kF4, {20}}), "ok") << "packed dtypes go as bytes";
}

}  // namespace
}  // namespace wisp::testing
