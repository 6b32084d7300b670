#include <gtest/gtest.h>

#include "checkpoint/blocks.hpp"
#include "expect_result.hpp"
#include "kernel/tensor_seed.hpp"
#include "wisp/schema.hpp"

namespace wisp::testing {
namespace {

TEST(TensorBytes, MultipliesTheShapeOut) {
    EXPECT_EQ(value_of(byte_count_of({"t", Dtype::kBf16, {3, 5}})), 30U);
    EXPECT_EQ(value_of(byte_count_of({"t", Dtype::kF64, {}})), 8U) << "a scalar";
    EXPECT_EQ(value_of(byte_count_of({"t", Dtype::kF32, {7, 0}})), 0U);
}

TEST(TensorBytes, TakesPackedTypesAsBytes) {
    EXPECT_EQ(value_of(byte_count_of({"t", Dtype::kF4, {6}})), 3U);
    EXPECT_EQ(element_count_of({"t", Dtype::kF4, {6}}), 3U);
    EXPECT_EQ(value_of(byte_count_of({"t", Dtype::kF6E2M3, {4}})), 3U);
    EXPECT_EQ(outcome_of(byte_count_of({"t", Dtype::kF4, {3}})), "invalid");
    EXPECT_EQ(outcome_of(byte_count_of({"t", Dtype::kF6E3M2, {5}})), "invalid");
}

TEST(TensorBytes, RefusesAShapeThatOverflows) {
    EXPECT_EQ(outcome_of(byte_count_of({"t", Dtype::kF32, {1ULL << 32, 1ULL << 32}})), "invalid");
    EXPECT_EQ(outcome_of(byte_count_of({"t", Dtype::kU8, {1ULL << 61}})), "invalid")
        << "its bits do not fit 64";
    EXPECT_EQ(outcome_of(byte_count_of({"t", Dtype::kU8, {(1ULL << 61) - 1}})), "ok");
}

TEST(Schema, SortsByName) {
    const Schema schema = value_of(Schema::make({{"b", Dtype::kU8, {2}}, {"a", Dtype::kF32, {3}}}));
    EXPECT_EQ(schema.tensors()[0].name, "a");
    EXPECT_EQ(schema.find("b"), 1U);
    EXPECT_EQ(schema.find("c"), std::nullopt);
    EXPECT_EQ(schema.total_bytes(), 14U);
    EXPECT_EQ(schema.total_elements(), 5U);
}

TEST(Schema, RefusesTwoTensorsOfOneName) {
    EXPECT_EQ(outcome_of(Schema::make({{"a", Dtype::kU8, {2}}, {"a", Dtype::kU8, {3}}})),
              "invalid");
}

TEST(Schema, RefusesATotalThatOverflows) {
    std::vector<TensorInfo> tensors;
    for (char name = 'a'; name < 'a' + 9; ++name) {
        tensors.push_back({std::string(1, name), Dtype::kU8, {(1ULL << 61) - 1}});
    }
    EXPECT_EQ(outcome_of(Schema::make(tensors)), "invalid");
}

TEST(SchemaDigest, DependsOnNameDtypeAndShapeButNotOnOrder) {
    const auto digest = [](std::vector<TensorInfo> tensors) {
        return value_of(Schema::make(std::move(tensors))).digest();
    };
    const TensorInfo a{"a", Dtype::kBf16, {2, 3}};
    const TensorInfo b{"b", Dtype::kBf16, {2, 3}};
    const std::string both = digest({a, b});
    EXPECT_EQ(both.size(), 32U);
    EXPECT_EQ(digest({b, a}), both);
    EXPECT_NE(digest({a}), both);
    EXPECT_NE(digest({a, {"b", Dtype::kF16, {2, 3}}}), both);
    EXPECT_NE(digest({a, {"b", Dtype::kBf16, {3, 2}}}), both);
    EXPECT_NE(digest({a, {"c", Dtype::kBf16, {2, 3}}}), both);
}

TEST(TensorSeed, TellsNeighboursApart) {
    const TensorSeed x = seed_of({"a", Dtype::kBf16, {2, 3}});
    for (const TensorInfo& other :
         {TensorInfo{"b", Dtype::kBf16, {2, 3}}, TensorInfo{"a", Dtype::kF16, {2, 3}},
          TensorInfo{"a", Dtype::kBf16, {6}}, TensorInfo{"a", Dtype::kBf16, {3, 2}}}) {
        const TensorSeed y = seed_of(other);
        EXPECT_TRUE(x.a != y.a && x.b != y.b);
    }
}

TEST(RequireSameSchema, NamesTheTensorThatDiffers) {
    const Schema x = value_of(Schema::make({{"a", Dtype::kU8, {2}}, {"b", Dtype::kU8, {2}}}));
    const Schema missing = value_of(Schema::make({{"a", Dtype::kU8, {2}}}));
    const Schema other = value_of(Schema::make({{"a", Dtype::kU8, {2}}, {"b", Dtype::kI8, {2}}}));
    EXPECT_EQ(outcome_of(require_same_schema(x, "x", x, "x")), "ok");
    for (const auto& result :
         {require_same_schema(x, "x", missing, "y"), require_same_schema(missing, "y", x, "x"),
          require_same_schema(x, "x", other, "y")}) {
        EXPECT_EQ(outcome_of(result), "invalid");
        EXPECT_NE(text_of(result).find("'b'"), std::string::npos);
    }
}

TEST(Dtypes, AreFoundByNameAndCode) {
    for (int code = 0; code < kDtypeCount; ++code) {
        const auto dtype = dtype_from_code(static_cast<std::uint64_t>(code));
        ASSERT_TRUE(dtype.has_value());
        EXPECT_EQ(static_cast<int>(*dtype), code);
        EXPECT_EQ(parse_dtype(traits_of(*dtype).name), dtype);
    }
    EXPECT_EQ(dtype_from_code(kDtypeCount), std::nullopt);
    EXPECT_EQ(parse_dtype("bf16"), std::nullopt);
}

TEST(BlockGrid, CutsTensorsIntoBlocksAndSkipsEmptyOnes) {
    const Schema schema = value_of(Schema::make(
        {{"a", Dtype::kBf16, {130}}, {"b", Dtype::kF32, {0}}, {"c", Dtype::kU8, {64}}}));
    const BlockGrid grid(schema, 6);
    ASSERT_EQ(grid.count(), 4U);
    EXPECT_EQ(grid[2].tensor, 0U);
    EXPECT_EQ(grid[2].first_element, 128U);
    EXPECT_EQ(grid[2].element_count, 2U);
    EXPECT_EQ(grid[2].first_word(), 32U);
    EXPECT_EQ(grid[3].tensor, 2U);
    EXPECT_EQ(grid[3].element_count, 64U);
}

}  // namespace
}  // namespace wisp::testing
