#include <gtest/gtest.h>

#include <cstdlib>

#include "temp_checkpoints.hpp"
#include "wisp/store.hpp"

namespace wisp::testing {
namespace {

std::string prefix_of(const std::string& url) {
    return value_of(open_location(url)).prefix;
}

TEST(Location, TakesPathsAndFileAddresses) {
    EXPECT_EQ(prefix_of("/data/runs/one"), "data/runs/one");
    EXPECT_EQ(prefix_of("/data//runs/./one/"), "data/runs/one");
    EXPECT_EQ(prefix_of("file:///data/runs/one/"), "data/runs/one");
    EXPECT_EQ(prefix_of("file://localhost/data"), "data");
    EXPECT_EQ(prefix_of("FILE:///data/with%20space%2B"), "data/with space+");
    EXPECT_EQ(prefix_of("/"), "");
    EXPECT_EQ(prefix_of("run"), (fs::current_path() / "run").relative_path().string());
    EXPECT_EQ(prefix_of("./run/"), (fs::current_path() / "run").relative_path().string());
}

TEST(Location, KeepsTheAddressAsItWasWritten) {
    EXPECT_EQ(value_of(open_location("/data//run/")).url, "/data//run/");
}

TEST(Location, ResolvesDotsBehindALinkAsTheFileSystemDoes) {
    const TempFolder folder;
    fs::create_directories(folder / "far/inner");
    fs::create_directory_symlink(folder / "far/inner", folder / "link");
    const fs::path expected = fs::canonical(folder / "far") / "run";
    EXPECT_EQ(prefix_of((folder / "link/../run").string()), expected.relative_path().string());
}

TEST(Location, ReachesNeighboursByTheirPrefix) {
    const TempFolder folder;
    const Location one = value_of(open_location((folder / "one").string()));
    const Location two = value_of(open_location("file://" + (folder / "two").string()));
    value_of(one.store->put(one.key("x"), as_bytes("hello")));
    EXPECT_EQ(read_bytes(folder / "one/x").size(), 5U);
    EXPECT_EQ(value_of(read_whole(*two.store, one.key("x"), 10)).size(), 5U);
}

TEST(Location, TakesBucketsAndWhateverAKeyMayHold) {
    EXPECT_EQ(prefix_of("s3://bucket"), "");
    EXPECT_EQ(prefix_of("s3://bucket/"), "");
    EXPECT_EQ(prefix_of("S3://bucket/runs/one/"), "runs/one");
    EXPECT_EQ(prefix_of("s3://my.bucket/with%20 space"), "with%20 space");
    EXPECT_EQ(outcome_of(open_location("s3://")), "invalid");
    EXPECT_EQ(outcome_of(open_location("s3:///run")), "invalid");
    EXPECT_EQ(outcome_of(open_location("s3://bucket//run")), "invalid");
    EXPECT_EQ(outcome_of(open_location("s3://bucket/../run")), "invalid");
    EXPECT_EQ(outcome_of(open_location("s3://user:secret@bucket/run")), "invalid");
}

TEST(Location, RefusesWhatItDoesNotKnow) {
    const auto unknown = open_location("gs://bucket/run");
    EXPECT_EQ(outcome_of(unknown), "invalid");
    EXPECT_NE(text_of(unknown).find("s3://bucket/prefix"), std::string::npos);
    EXPECT_EQ(outcome_of(open_location("hf://models/a/b")), "invalid");
    EXPECT_EQ(outcome_of(open_location("hf://buckets/a/b//c")), "invalid");
    EXPECT_EQ(outcome_of(open_location("")), "invalid");
    EXPECT_EQ(outcome_of(open_location("file://host/data")), "invalid");
    EXPECT_EQ(outcome_of(open_location("file:///data%2")), "invalid");
    EXPECT_EQ(outcome_of(open_location("file:///data%zz")), "invalid");
    EXPECT_EQ(outcome_of(open_location("file:///data%00")), "invalid");
    EXPECT_EQ(outcome_of(open_location("/data\x01")), "invalid");
    EXPECT_EQ(outcome_of(open_location("/" + std::string(1000, 'x'))), "invalid");
}

}  // namespace
}  // namespace wisp::testing
