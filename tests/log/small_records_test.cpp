// Heartbeats and pins: what replicas and branches leave in a run.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "expect_result.hpp"
#include "log/branch_pin.hpp"
#include "log/heartbeat.hpp"
#include "log/sample_commits.hpp"

namespace wisp::testing {
namespace {

using Json = nlohmann::ordered_json;

TEST(Heartbeat, KeepsEveryField) {
    const auto read =
        parse_heartbeat(write_heartbeat({hex_of('1', 32), 7, 70, 6, ReplicaStatus::kFollowing}));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->run, hex_of('1', 32));
    EXPECT_EQ(read->seq, 7U);
    EXPECT_EQ(read->step, 70U);
    EXPECT_EQ(read->state_index, 6U);
    EXPECT_EQ(read->status, ReplicaStatus::kFollowing);
    EXPECT_EQ(read->pause_us, std::nullopt);
    const auto told = parse_heartbeat(
        write_heartbeat({hex_of('1', 32), 7, 70, 6, ReplicaStatus::kFollowing, 1'500, 30'000}));
    ASSERT_TRUE(told);
    EXPECT_EQ(told->pause_us, 1'500);
    EXPECT_EQ(told->every_ms, 30'000);
}

TEST(Heartbeat, HasAWordForEachStatus) {
    const std::vector<std::pair<ReplicaStatus, std::string>> words = {
        {ReplicaStatus::kJoining, "joining"},
        {ReplicaStatus::kFollowing, "following"},
        {ReplicaStatus::kFailing, "failing"},
        {ReplicaStatus::kStopped, "stopped"}};
    for (const auto& [status, word] : words) {
        EXPECT_EQ(name_of(status), word);
        EXPECT_EQ(parse_replica_status(word), status);
        const std::string text = write_heartbeat({hex_of('1', 32), 7, 70, 6, status});
        EXPECT_EQ(Json::parse(text)["status"], word);
        EXPECT_EQ(parse_heartbeat(text)->status, status);
    }
}

TEST(Heartbeat, OfANewerVersionIsReadWithItsStatusUnknown) {
    Json json = Json::parse(write_heartbeat({hex_of('1', 32), 7, 70, 6}));
    for (const std::string word : {"warming_up", "", "Stopped", "\x1b[31m"}) {
        json["status"] = word;
        const auto read = parse_heartbeat(json.dump());
        ASSERT_TRUE(read) << word;
        EXPECT_EQ(read->status, ReplicaStatus::kUnknown) << word;
        EXPECT_EQ(read->step, 70U);
        EXPECT_EQ(parse_replica_status(word), std::nullopt);
    }
    EXPECT_EQ(name_of(ReplicaStatus::kUnknown), "unknown");
}

TEST(Heartbeat, IsNothingWhenBroken) {
    EXPECT_FALSE(parse_heartbeat(""));
    EXPECT_FALSE(parse_heartbeat("{\"wisp\":\"heartbeat\"}"));
    EXPECT_FALSE(parse_heartbeat("{\"wisp\":\"latest\",\"seq\":1}"));
    EXPECT_FALSE(parse_heartbeat(std::string(100'000, '[')));
}

TEST(BranchPin, KeepsEveryField) {
    const BranchPin written{
        hex_of('1', 32), "../branch", {"anchors/a.safetensors", "deltas/b.safetensors"}};
    const BranchPin read = value_of(parse_branch_pin(write_branch_pin(written)));
    EXPECT_EQ(read.run, written.run);
    EXPECT_EQ(read.at, written.at);
    EXPECT_EQ(read.keys, written.keys);
}

TEST(BranchPin, RefusesWhatItCannotKeepWholly) {
    // A pin that is only half understood would let retention remove what a branch stands on.
    const Json sound = Json::parse(write_branch_pin({hex_of('1', 32), "../b", {"anchors/a"}}));
    for (const Json& key : {Json(7), Json("commits/1"), Json("anchors/../x"), Json("")}) {
        Json json = sound;
        json["keys"].push_back(key);
        EXPECT_EQ(outcome_of(parse_branch_pin(json.dump())), "corrupt") << key;
    }
    Json json = sound;
    json["keys"] = Json(100'001, "anchors/a");
    EXPECT_EQ(outcome_of(parse_branch_pin(json.dump())), "corrupt");
    for (const char* name : {"wisp", "run", "at"}) {
        json = sound;
        json.erase(name);
        EXPECT_EQ(outcome_of(parse_branch_pin(json.dump())), "corrupt") << name;
    }
    EXPECT_EQ(outcome_of(parse_branch_pin("")), "corrupt");
    EXPECT_EQ(outcome_of(parse_branch_pin(sound.dump().substr(0, 20))), "corrupt");
}

}  // namespace
}  // namespace wisp::testing
