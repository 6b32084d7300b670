#include <algorithm>
#include <chrono>

#include "contract/store_contract.hpp"

namespace wisp::testing {
namespace {

using Names = std::vector<std::string>;

TEST_P(StoreContract, GivesBackWhatWasPut) {
    put("a", "hello");
    EXPECT_EQ(text("a"), "hello");
    EXPECT_EQ(value_of(store().head(key("a"))).size_bytes, 5U);
}

TEST_P(StoreContract, ReplacesOnPut) {
    put("a", "a longer text");
    put("a", "short");
    EXPECT_EQ(text("a"), "short");
    put("a", "long once more");
    EXPECT_EQ(text("a"), "long once more");
}

TEST_P(StoreContract, CreatesOnlyOnce) {
    EXPECT_EQ(value_of(store().create(key("a"), as_bytes("first"))), Created::kNew);
    EXPECT_EQ(value_of(store().create(key("a"), as_bytes("second"))), Created::kAlreadyThere);
    EXPECT_EQ(text("a"), "first");
    put("b", "put");
    EXPECT_EQ(value_of(store().create(key("b"), as_bytes("x"))), Created::kAlreadyThere);
    EXPECT_EQ(text("b"), "put");
    value_of(store().remove(key("a")));
    EXPECT_EQ(value_of(store().create(key("a"), as_bytes("third"))), Created::kNew);
    EXPECT_EQ(text("a"), "third");
}

TEST_P(StoreContract, CreatesBesideWhatExists) {
    EXPECT_EQ(value_of(store().create(key("deep/er/a"), as_bytes("1"))), Created::kNew);
    EXPECT_EQ(value_of(store().create(key("deep/er/b"), as_bytes("2"))), Created::kNew);
    EXPECT_EQ(value_of(store().create(key("deep/c"), {})), Created::kNew);
    EXPECT_EQ(names("deep/"), (Names{"deep/c", "deep/er/a", "deep/er/b"}));
}

TEST_P(StoreContract, ReadsRanges) {
    put("a", "0123456789");
    const auto range = [&](std::uint64_t offset, std::size_t length) {
        std::string into(length, '#');
        const auto count =
            value_of(store().read(key("a"), offset, std::as_writable_bytes(std::span<char>(into))));
        EXPECT_EQ(into.substr(count), std::string(length - count, '#')) << "wrote past the end";
        return into.substr(0, count);
    };
    EXPECT_EQ(range(0, 10), "0123456789");
    EXPECT_EQ(range(0, 1), "0");
    EXPECT_EQ(range(3, 4), "3456");
    EXPECT_EQ(range(9, 1), "9");
    EXPECT_EQ(range(8, 100), "89");
    EXPECT_EQ(range(0, 11), "0123456789");
    EXPECT_EQ(range(10, 5), "");
    EXPECT_EQ(range(11, 5), "");
    EXPECT_EQ(range(1'000'000'000'000, 5), "");
    EXPECT_EQ(range(4, 0), "");
    EXPECT_EQ(range(10, 0), "");
}

TEST_P(StoreContract, RefusesToReadNothingAtAll) {
    Bytes into(4);
    EXPECT_EQ(outcome_of(store().read(key("none"), 0, into)), "not_found");
    EXPECT_EQ(outcome_of(store().read(key("none"), 0, {})), "not_found");
    EXPECT_EQ(outcome_of(store().read(key("none"), 100, into)), "not_found");
    EXPECT_EQ(outcome_of(store().head(key("none"))), "not_found");
    EXPECT_EQ(outcome_of(read_whole(store(), key("none"), 10)), "not_found");
    put("folder/a", "x");
    EXPECT_EQ(outcome_of(store().head(key("folder"))), "not_found");
    EXPECT_EQ(outcome_of(store().read(key("folder"), 0, into)), "not_found");
    EXPECT_EQ(outcome_of(store().head(key("folder/a/b"))), "not_found");
}

TEST_P(StoreContract, HoldsEmptyObjects) {
    put("a", "");
    EXPECT_EQ(value_of(store().create(key("b"), {})), Created::kNew);
    EXPECT_EQ(value_of(store().create(key("b"), as_bytes("x"))), Created::kAlreadyThere);
    Bytes into(4);
    EXPECT_EQ(value_of(store().read(key("a"), 0, into)), 0U);
    EXPECT_EQ(value_of(store().read(key("b"), 7, into)), 0U);
    EXPECT_EQ(value_of(store().read(key("a"), 0, {})), 0U);
    EXPECT_EQ(value_of(store().head(key("a"))).size_bytes, 0U);
    EXPECT_EQ(text("b"), "");
    EXPECT_EQ(names(""), (Names{"a", "b"}));
}

TEST_P(StoreContract, HoldsLargeObjects) {
    const Bytes bytes = random_bytes(20'000'003, 7);
    value_of(store().put(key("large"), bytes));
    EXPECT_EQ(value_of(store().head(key("large"))).size_bytes, bytes.size());
    EXPECT_TRUE(value_of(read_whole(store(), key("large"), bytes.size())) == bytes);
    Bytes into(5'000'000);
    EXPECT_EQ(value_of(store().read(key("large"), 16'000'000, into)), 4'000'003U);
    EXPECT_TRUE(std::equal(into.begin(), into.begin() + 4'000'003, bytes.begin() + 16'000'000));
}

TEST_P(StoreContract, ReadsWholeObjectsOnlyUpToTheLimit) {
    put("a", "12345");
    EXPECT_EQ(value_of(read_whole(store(), key("a"), 5)).size(), 5U);
    EXPECT_EQ(outcome_of(read_whole(store(), key("a"), 4)), "corrupt");
    EXPECT_EQ(outcome_of(read_whole(store(), key("a"), 0)), "corrupt");
    value_of(store().put(key("b"), random_bytes(200'000, 1)));
    EXPECT_EQ(value_of(read_whole(store(), key("b"), 200'000)).size(), 200'000U);
    EXPECT_EQ(outcome_of(read_whole(store(), key("b"), 199'999)), "corrupt");
    put("empty", "");
    EXPECT_EQ(value_of(read_whole(store(), key("empty"), 0)).size(), 0U);
}

TEST_P(StoreContract, RemovesOnceOrTwice) {
    put("a", "x");
    put("ab", "y");
    value_of(store().remove(key("a")));
    EXPECT_EQ(outcome_of(store().head(key("a"))), "not_found");
    EXPECT_EQ(names(""), Names{"ab"});
    value_of(store().remove(key("a")));
    value_of(store().remove(key("never/was")));
    EXPECT_EQ(text("ab"), "y");
}

TEST_P(StoreContract, RemovesNothingBelowAName) {
    put("a/b", "x");
    value_of(store().remove(key("a")));
    EXPECT_EQ(text("a/b"), "x");
}

TEST_P(StoreContract, SeesEveryWriteAtOnce) {
    for (int round = 0; round < 20; ++round) {
        const std::string value = std::to_string(round);
        put("a", value);
        ASSERT_EQ(text("a"), value);
        const std::string fresh = "n" + value;
        ASSERT_EQ(value_of(store().create(key(fresh), as_bytes(value))), Created::kNew);
        ASSERT_EQ(text(fresh), value);
        ASSERT_EQ(names(fresh), Names{fresh});
        value_of(store().remove(key(fresh)));
        ASSERT_EQ(outcome_of(store().head(key(fresh))), "not_found");
        ASSERT_EQ(names(fresh), Names{});
    }
}

TEST_P(StoreContract, TellsItsOwnTime) {
    const std::int64_t before = value_of(store().now_ms());
    put("a", "x");
    const std::int64_t after = value_of(store().now_ms());
    EXPECT_LE(before, after);
    const ObjectInfo info = value_of(store().head(key("a")));
    // Times may be told in whole seconds.
    EXPECT_GE(info.modified_ms, before - 1500);
    EXPECT_LE(info.modified_ms, after + 1500);
    const auto here = std::chrono::duration_cast<std::chrono::milliseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
    EXPECT_LT(std::abs(here - after), 600'000);
    const auto listed = value_of(store().list(key("a"), "", 1));
    ASSERT_EQ(listed.size(), 1U);
    EXPECT_EQ(listed[0].info.size_bytes, 1U);
    EXPECT_LE(std::abs(listed[0].info.modified_ms - info.modified_ms), 1000);
}

INSTANTIATE_TEST_SUITE_P(Store, StoreContract, ::testing::ValuesIn(store_factories()),
                         name_of_factory);

}  // namespace
}  // namespace wisp::testing
