#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "contract/store_contract.hpp"
#include "wisp/hub.hpp"

namespace wisp::testing {
namespace {

using Names = std::vector<std::string>;

class ListingContract : public StoreContract {};

TEST_P(ListingContract, IsEmptyWhereNothingIs) {
    EXPECT_EQ(names(""), Names{});
    EXPECT_EQ(names("no/such/folder/"), Names{});
    put("a", "x");
    EXPECT_EQ(names("a/"), Names{});
    EXPECT_EQ(names("", "", 0), Names{});
}

TEST_P(ListingContract, OrdersByBytesAcrossFolders) {
    // '-' and '.' sort before '/', digits and letters behind it.
    Names all = {"a-b", "a.b", "a/b",     "a/b-c", "a/b0/x", "a/bc", "a0",
                 "aB",  "ab",  "b/a/a/a", "b/a0",  "z",      "ä",    "日本"};
    for (auto at = all.rbegin(); at != all.rend(); ++at) put(*at, *at);
    std::ranges::sort(all);
    EXPECT_EQ(names(""), all);
}

TEST_P(ListingContract, KeepsToThePrefix) {
    for (const char* name : {"a/b/1", "a/b/2", "a/bc/1", "a/b-/1", "a/c", "ab", "b"}) put(name, "");
    EXPECT_EQ(names("a/b"), (Names{"a/b-/1", "a/b/1", "a/b/2", "a/bc/1"}));
    EXPECT_EQ(names("a/b/"), (Names{"a/b/1", "a/b/2"}));
    EXPECT_EQ(names("a/bc"), Names{"a/bc/1"});
    EXPECT_EQ(names("a"), (Names{"a/b-/1", "a/b/1", "a/b/2", "a/bc/1", "a/c", "ab"}));
    EXPECT_EQ(names("a/b/1"), Names{"a/b/1"});
    EXPECT_EQ(names("a/b/1/"), Names{});
    EXPECT_EQ(names("a/bcd"), Names{});
}

TEST_P(ListingContract, GoesOnBehindAName) {
    for (const char* name : {"a/1", "a/2", "a/3/x", "a/4", "b/1", "c"}) put(name, "");
    EXPECT_EQ(names("", "a/2"), (Names{"a/3/x", "a/4", "b/1", "c"}));
    EXPECT_EQ(names("", "a/3"), (Names{"a/3/x", "a/4", "b/1", "c"}));
    EXPECT_EQ(names("", "a/3/x"), (Names{"a/4", "b/1", "c"}));
    EXPECT_EQ(names("", "a/3/y"), (Names{"a/4", "b/1", "c"}));
    EXPECT_EQ(names("a/", "a/2"), (Names{"a/3/x", "a/4"}));
    EXPECT_EQ(names("a/", "a/4"), Names{});
    EXPECT_EQ(names("b/", "a/4"), Names{"b/1"});
    EXPECT_EQ(names("a/", "zzz"), Names{});
    EXPECT_EQ(names("", "c"), Names{});
}

TEST_P(ListingContract, StopsAtTheLimit) {
    for (const char* name : {"a/1", "a/2", "b/1", "b/2", "c"}) put(name, "");
    EXPECT_EQ(names("", "", 1), Names{"a/1"});
    EXPECT_EQ(names("", "", 3), (Names{"a/1", "a/2", "b/1"}));
    EXPECT_EQ(names("", "a/2", 2), (Names{"b/1", "b/2"}));
    EXPECT_EQ(names("b/", "", 1), Names{"b/1"});
}

TEST_P(ListingContract, PagesThroughManyObjects) {
    Names all;
    for (int i = 0; i < 60; ++i) {
        all.push_back("n/" + std::to_string(i) + (i % 3 == 0 ? "/deep" : ""));
        put(all.back(), "x");
    }
    std::ranges::sort(all);
    Names paged;
    for (Names page = names("n/", "", 7); !page.empty(); page = names("n/", paged.back(), 7)) {
        ASSERT_LE(page.size(), 7U);
        paged.insert(paged.end(), page.begin(), page.end());
    }
    EXPECT_EQ(paged, all);
}

TEST_P(ListingContract, ListsMoreThanOneServerPage) {
    // Servers page by at most 1000. Many threads, because each put waits for its disk.
    constexpr int kObjects = 1050;
    std::atomic<int> next = 0;
    {
        std::vector<std::jthread> writers;
        for (int i = 0; i < 16; ++i) {
            writers.emplace_back([&] {
                for (int n = next++; n < kObjects; n = next++) put(fmt::format("many/{}", n), "");
            });
        }
    }
    EXPECT_EQ(names("many/").size(), 1050U);
    EXPECT_EQ(names("many/", "", 1001).size(), 1001U);
}

TEST_P(ListingContract, CarriesStrangeNames) {
    std::string long_name;
    while (key(long_name).size() < 700) long_name += std::string(99, 'l') + "/";
    long_name += "end";
    Names all = {"with space",  "plus+plus",     "per%cent",       "%20",
                 "a=b&c=d",     "tilde~",        "quote'\"",       "semi;colon:",
                 "at@dollar$",  "star*(paren)!", "comma,",         "[x]{y}|^`",
                 "back\\slash", "<tag>&amp;",    "question?hash#", "ünïcödé/日本語/🙂",
                 ".hidden",     "...",           "-dash",          " leading",
                 "trailing ",   long_name};
    if (under_test_.location.url.starts_with("hf://")) {
        std::erase_if(all, [&](const std::string& name) {
            if (check_hub_key(name)) return false;
            EXPECT_EQ(outcome_of(store().put(key(name), {})), "invalid") << name;
            return true;
        });
    }
    for (const std::string& name : all) {
        put(name, name);
        EXPECT_EQ(text(name), name);
    }
    std::ranges::sort(all);
    EXPECT_EQ(names(""), all);
    for (const std::string& name : all) {
        EXPECT_EQ(names(name), Names{name});
        EXPECT_EQ(value_of(store().create(key(name), {})), Created::kAlreadyThere);
        value_of(store().remove(key(name)));
        EXPECT_EQ(outcome_of(store().head(key(name))), "not_found");
    }
    EXPECT_EQ(names(""), Names{});
}

TEST_P(ListingContract, TellsSimilarUnicodeApart) {
    // One letter composed, and as a letter with a combining mark.
    put("caf\u00e9", "composed");
    put("cafe\u0301", "combined");
    EXPECT_EQ(text("caf\u00e9"), "composed");
    EXPECT_EQ(text("cafe\u0301"), "combined");
}

TEST_P(ListingContract, RefusesIllegalKeysEverywhere) {
    Bytes into(1);
    for (const std::string& bad :
         {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"),
          std::string("."), std::string(".."), std::string("a/../b"), std::string("../a"),
          std::string("a/."), std::string("a\nb"), std::string("a\0b", 3), std::string("a\x7f"),
          std::string("a\u0085"), std::string("\xff\xfe"), std::string(901, 'a')}) {
        EXPECT_EQ(outcome_of(store().put(bad, {})), "invalid");
        EXPECT_EQ(outcome_of(store().create(bad, {})), "invalid");
        EXPECT_EQ(outcome_of(store().read(bad, 0, into)), "invalid");
        EXPECT_EQ(outcome_of(store().head(bad)), "invalid");
        EXPECT_EQ(outcome_of(store().remove(bad)), "invalid");
    }
    for (const std::string bad : {"../", "a/../b", "/", "a//", "a\n"}) {
        EXPECT_EQ(outcome_of(store().list(bad, "", 1)), "invalid") << bad;
    }
}

INSTANTIATE_TEST_SUITE_P(Store, ListingContract, ::testing::ValuesIn(store_factories()),
                         name_of_factory);

}  // namespace
}  // namespace wisp::testing
