#include "log/run_keys.hpp"
#include "checkpoint/file_name.hpp"

#include <gtest/gtest.h>

namespace wisp::testing {
namespace {

const std::string kHash = "0123456789abcdef" + std::string(48, 'f');

TEST(RunKeys, NamesObjectsByStepEpochAndHash) {
    EXPECT_EQ(commit_key(42), "commits/00000000000000000042");
    EXPECT_EQ(commit_key(~std::uint64_t{0}), "commits/18446744073709551615");
    EXPECT_EQ(anchor_key({40, 3, kHash, {}}),
              "anchors/step_000040-e3-0123456789abcdef.safetensors");
    EXPECT_EQ(side_file_key({40, 3, kHash, {}}), "anchors/step_000040-e3-0123456789abcdef.file");
    EXPECT_EQ(delta_key({42, 3, kHash, {}}), "deltas/step_000042-e3-0123456789abcdef.safetensors");
    EXPECT_EQ(merged_key({48, 3, kHash, {}}, 32),
              "deltas/step_000048_from_000032-e3-0123456789abcdef.safetensors");
    EXPECT_EQ(delta_key({42, 3, kHash, {1, 12}}),
              "deltas/step_000042-e3-0123456789abcdef.safetensors.part_00002_of_00012");
    EXPECT_EQ(step_text(12345678), "step_12345678");
}

TEST(RunKeys, EveryKeyItMakesMayBeNamedByACommit) {
    const ObjectName name{~std::uint64_t{0}, ~std::uint64_t{0}, kHash, {9999, 10000}};
    for (const std::string& key :
         {anchor_key(name), side_file_key(name), delta_key(name), merged_key(name, ~0ULL)}) {
        EXPECT_TRUE(is_data_key(key)) << key;
    }
}

TEST(RunKeys, ADataKeyStaysInItsFolder) {
    EXPECT_TRUE(is_data_key("anchors/a"));
    EXPECT_TRUE(is_data_key("deltas/step_000001.safetensors"));
    for (const char* key :
         {"", "a", "anchors", "anchors/", "anchors/.", "anchors/..", "anchors/.a", "anchors/a/b",
          "anchors//a", "commits/1", "replicas/a", "branches/a", "latest", "format.json",
          "../anchors/a", "anchors/a\n", "anchors/\xff", "anchors/a%2f"}) {
        EXPECT_FALSE(is_data_key(key)) << key;
    }
    EXPECT_FALSE(is_data_key(std::string_view("anchors/a\0b", 11)));
}

TEST(RunKeys, AFileNameIsPlain) {
    for (const std::string& name : {std::string("model.safetensors"), std::string("a"),
                                    std::string("model-00001-of-00002.safetensors"),
                                    std::string("-"), std::string(200, 'a')}) {
        EXPECT_TRUE(is_file_name(name)) << name;
    }
    for (const std::string& name :
         {std::string(), std::string("."), std::string(".."), std::string(".hidden"),
          std::string("a/b"), std::string("a\\b"), std::string("a b"), std::string("a:b"),
          std::string("a\0b", 3), std::string("\xc3\xa4"), std::string(201, 'a')}) {
        EXPECT_FALSE(is_file_name(name)) << name;
    }
}

TEST(RunKeys, APathToARunClimbsFirst) {
    for (const char* path : {"..", "../other", "../../x/y", "../..", "../a b", "../\xc3\xa4"}) {
        EXPECT_TRUE(is_run_path(path)) << path;
    }
    for (const char* path : {"", "/", "other", "/other", "../", "../a/", "../a/..", "../a/../b",
                             "..//a", "../.", "../a/./b", "../a\x01", ". ./a", "./.."}) {
        EXPECT_FALSE(is_run_path(path)) << path;
    }
    std::string deep = "..";
    for (int i = 1; i < 64; ++i) deep += "/..";
    EXPECT_TRUE(is_run_path(deep));
    EXPECT_FALSE(is_run_path(deep + "/.."));
    EXPECT_FALSE(is_run_path("../" + std::string(201, 'a')));
}

TEST(RunKeys, ResolvesAPathInsideTheStoreOnly) {
    EXPECT_EQ(resolve_run_path("runs/a", "../b"), "runs/b");
    EXPECT_EQ(resolve_run_path("runs/a", "../../b"), "b");
    EXPECT_EQ(resolve_run_path("a", ".."), "");
    EXPECT_EQ(resolve_run_path("runs/a/b", "../.."), "runs");
    EXPECT_EQ(resolve_run_path("a", "../.."), std::nullopt) << "out of the store";
    EXPECT_EQ(resolve_run_path("", "../b"), std::nullopt);
    EXPECT_EQ(resolve_run_path("a", "b"), std::nullopt) << "not a path to a run";
    EXPECT_EQ(resolve_run_path("a", "../b/../c"), std::nullopt);
}

TEST(RunKeys, APathBetweenTwoRunsLeadsThere) {
    EXPECT_EQ(run_path_between("runs/a", "runs/b"), "../b");
    EXPECT_EQ(run_path_between("a", "b"), "../b");
    EXPECT_EQ(run_path_between("x/y/a", "x/b"), "../../b");
    EXPECT_EQ(run_path_between("runs/a", "runs/a/inner"), "../a/inner");
    EXPECT_EQ(run_path_between("runs/a/inner", "runs/a"), "..");
    for (const char* from : {"a", "runs/a", "runs/b", "runs/a/inner", "x/y/z", "runs"}) {
        for (const char* to : {"a", "runs/a", "runs/b", "runs/a/inner", "x/y/z", "runs", ""}) {
            const std::string path = run_path_between(from, to);
            EXPECT_TRUE(is_run_path(path)) << from << " to " << to << ": " << path;
            EXPECT_EQ(resolve_run_path(from, path), to) << path;
        }
    }
}

TEST(RunKeys, ReadsAndWritesTheNamesOfTrl) {
    EXPECT_EQ(trl_anchor_key(40), "anchors/step_000040.safetensors");
    EXPECT_EQ(trl_delta_key(1234567), "deltas/step_1234567.safetensors");
    EXPECT_EQ(trl_step_of("anchors/step_000040.safetensors", kAnchorsPrefix), 40U);
    EXPECT_EQ(trl_step_of("deltas/step_1234567.safetensors", kDeltasPrefix), 1234567U);
    for (const char* key :
         {"anchors/step_000040-e1-0123456789abcdef.safetensors", "anchors/step_40.safetensors",
          "anchors/step_.safetensors", "anchors/step_000040.bin", "anchors/.safetensors",
          "anchors/step_-00040.safetensors", "anchors/step_99999999999999999999.safetensors",
          "deltas/step_000040.safetensors", "anchors/safetensors", "step_000040.safetensors"}) {
        EXPECT_EQ(trl_step_of(key, kAnchorsPrefix), std::nullopt) << key;
    }
}

}  // namespace
}  // namespace wisp::testing
