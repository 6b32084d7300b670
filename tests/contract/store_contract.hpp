// The fixture of the contract suite: a store of the kind under test, and short ways to ask it.
#pragma once

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "contract/store_factories.hpp"
#include "expect_result.hpp"

namespace wisp::testing {

class StoreContract : public ::testing::TestWithParam<StoreFactory> {
  protected:
    void SetUp() override {
        under_test_ = GetParam().make();
        if (under_test_.location.store == nullptr) GTEST_SKIP() << under_test_.why_not;
    }

    Store& store() { return *under_test_.location.store; }
    std::string key(std::string_view name) { return under_test_.location.key(name); }

    void put(std::string_view name, std::string_view text) {
        value_of(store().put(key(name), as_bytes(text)));
    }
    std::string text(std::string_view name) {
        const auto bytes = value_of(read_whole(store(), key(name), 1 << 26));
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    /// Names, without the prefix the suite works under.
    std::vector<std::string> names(std::string_view prefix, std::string_view after = "",
                                   std::size_t limit = 10'000) {
        const std::string root = key("");
        std::vector<std::string> found;
        for (const ListedObject& object :
             value_of(store().list(key(prefix), after.empty() ? "" : key(after), limit))) {
            found.push_back(object.key.substr(root.size()));
        }
        return found;
    }

    static Bytes random_bytes(std::size_t count, std::uint64_t seed) {
        Random random(seed);
        Bytes bytes(count);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() >> 56);
        return bytes;
    }

    StoreUnderTest under_test_;
};

inline std::string name_of_factory(const ::testing::TestParamInfo<StoreFactory>& info) {
    return info.param.name;
}

}  // namespace wisp::testing
