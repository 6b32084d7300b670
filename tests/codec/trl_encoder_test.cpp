#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "codec/trl_encoder.hpp"
#include "delta/trl_sealer.hpp"

namespace wisp {
namespace {

BlockChanges at(std::vector<std::uint32_t> positions) {
    BlockChanges changes;
    changes.positions = std::move(positions);
    return changes;
}

template <class T>
std::vector<T> numbers(const Bytes& bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

TEST(TrlIndices, CountFromTheStartOfTheTensor) {
    Bytes narrow;
    append_indices(at({0, 5}), 100, false, narrow);
    EXPECT_EQ(numbers<std::int32_t>(narrow), (std::vector<std::int32_t>{100, 105}));
    Bytes wide;
    append_indices(at({7}), std::uint64_t{1} << 40, true, wide);
    EXPECT_EQ(numbers<std::int64_t>(wide), (std::vector<std::int64_t>{(1LL << 40) + 7}));
}

TEST(TrlIndices, AreWideOnlyWhereTheyMustBe) {
    EXPECT_FALSE(needs_wide_indices(std::uint64_t{1} << 31));
    EXPECT_TRUE(needs_wide_indices((std::uint64_t{1} << 31) + 1));
}

TEST(TrlGaps, CountTheUnchangedBetweenChangesAcrossBlocks) {
    GapEncoder gaps;
    Bytes out;
    EXPECT_TRUE(gaps.append(at({0, 1, 5}), 0, out));
    EXPECT_TRUE(gaps.append(at({0, 9}), 64, out));
    EXPECT_EQ(numbers<std::uint32_t>(out), (std::vector<std::uint32_t>{0, 0, 3, 58, 8}));
    EXPECT_EQ(gaps.largest_gap(), 58U);
}

TEST(TrlGaps, RefuseAGapBeyond32Bits) {
    GapEncoder gaps;
    Bytes out;
    EXPECT_TRUE(gaps.append(at({0}), 0xFFFFFFFF, out));
    EXPECT_FALSE(gaps.append(at({1}), 0x200000000, out));
}

TEST(TrlValues, OfPackedTypesAreBytes) {
    EXPECT_EQ(value_dtype(Dtype::kF4), Dtype::kU8);
    EXPECT_EQ(value_dtype(Dtype::kF6E2M3), Dtype::kU8);
    EXPECT_EQ(value_dtype(Dtype::kBf16), Dtype::kBf16);
    EXPECT_EQ(value_dtype(Dtype::kBool), Dtype::kBool);
}

}  // namespace
}  // namespace wisp
