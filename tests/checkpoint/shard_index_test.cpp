#include <gtest/gtest.h>

#include "checkpoint/shard_index.hpp"
#include "expect_result.hpp"

namespace wisp::testing {
namespace {

std::string manifest_to(std::string_view file) {
    return R"({"weight_map":{"t":")" + std::string(file) + R"("}})";
}

TEST(ShardIndex, MapsTensorsToFiles) {
    const auto index = value_of(parse_shard_index(
        R"({"metadata":{"total_size":12,"deep":[[{"x":null}],1.5,-3,true]},)"
        R"("weight_map":{"a":"one.safetensors","b":"two.safetensors"},"more":"text"})",
        "i"));
    EXPECT_EQ(index.size(), 2U);
    EXPECT_EQ(index.at("a"), "one.safetensors");
    EXPECT_EQ(index.at("b"), "two.safetensors");
}

TEST(ShardIndex, RejectsNamesThatAreMoreThanAName) {
    EXPECT_EQ(outcome_of(parse_shard_index(manifest_to("x.safetensors"), "i")), "ok");
    for (const char* name :
         {"../x.safetensors", "/etc/x.safetensors", "a/x.safetensors", "a\\\\x.safetensors",
          ".x.safetensors", ".safetensors", "x.bin", "x.safetensors.json", "",
          "x\\u0000.safetensors", "..", "x.safetensors/"}) {
        EXPECT_EQ(outcome_of(parse_shard_index(manifest_to(name), "i")), "corrupt") << name;
    }
    EXPECT_EQ(
        outcome_of(parse_shard_index(manifest_to(std::string(250, 'x') + ".safetensors"), "i")),
        "corrupt");
}

TEST(ShardIndex, RejectsWhatIsNotAnIndex) {
    for (const char* json :
         {"", "{", "{}", "[]", "3", "null", R"("weight_map")", R"({"weight_map":1})",
          R"({"weight_map":"x.safetensors"})", R"({"weight_map":["x.safetensors"]})",
          R"({"weight_map":[]})", R"({"weight_map":{"t":1}})", R"({"weight_map":{"t":null}})",
          R"({"weight_map":{"t":["x.safetensors"]}})", R"({"weight_map":{"t":{}}})",
          R"({"weight_map":{},"weight_map":{}})",
          R"({"weight_map":{"t":"x.safetensors","t":"y.safetensors"}})",
          R"({"weight_map":{}} x)"}) {
        EXPECT_EQ(outcome_of(parse_shard_index(json, "i")), "corrupt") << json;
    }
}

TEST(ShardIndex, RejectsNestingBeyondEight) {
    const auto nested = [](std::size_t depth) {
        return R"({"weight_map":{"a":"x.safetensors"},"m":)" + std::string(depth, '[') +
               std::string(depth, ']') + "}";
    };
    EXPECT_EQ(outcome_of(parse_shard_index(nested(7), "i")), "ok");
    EXPECT_EQ(outcome_of(parse_shard_index(nested(8), "i")), "corrupt");
    EXPECT_EQ(outcome_of(parse_shard_index(R"({"m":)" + std::string(1'000'000, '['), "i")),
              "corrupt");
}

}  // namespace
}  // namespace wisp::testing
