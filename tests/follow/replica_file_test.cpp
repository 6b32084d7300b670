#include "follow/replica_file.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "expect_result.hpp"
#include "log/sample_commits.hpp"

namespace wisp::testing {
namespace {

using Json = nlohmann::ordered_json;

ReplicaRecord record_at(std::uint64_t seq) {
    ReplicaRecord record;
    record.run = hex_of('1', 32);
    record.epoch = 3;
    record.seq = seq + 1;
    record.commit_hash = hex_of('2', 64);
    record.state_seq = seq;
    record.step = seq * 10;
    record.state = {seq, ~seq};
    record.unproven = true;
    record.chain_id = 2;
    record.cumulative_delta_bytes = 12345;
    record.state_index = 17;
    record.certificate_serial = 5;
    return record;
}

ReplicaFile full_file() {
    ReplicaFile file;
    file.at = record_at(7);
    file.next = record_at(8);
    file.files = {"config.json", "model.safetensors"};
    file.incoming = "incoming";
    file.moving = {"model-00001-of-00001.safetensors"};
    return file;
}

std::string outcome_after(const std::function<void(Json&)>& change) {
    Json json = Json::parse(write_replica_file(full_file()));
    change(json);
    return outcome_of(parse_replica_file(json.dump()));
}

void expect_round_trip(const ReplicaFile& written) {
    const ReplicaFile read = value_of(parse_replica_file(write_replica_file(written)));
    EXPECT_EQ(read.at, written.at);
    EXPECT_EQ(read.next, written.next);
    EXPECT_EQ(read.files, written.files);
    EXPECT_EQ(read.incoming, written.incoming);
    EXPECT_EQ(read.moving, written.moving);
}

TEST(ReplicaFile, KeepsEveryField) {
    expect_round_trip(full_file());
    expect_round_trip({});
    ReplicaFile file = full_file();
    file.incoming.clear();
    file.moving.clear();
    file.next.reset();
    file.at->commit_hash.clear();
    expect_round_trip(file);
}

TEST(ReplicaFile, RefusesAnotherFormat) {
    for (const char* text : {"", "{}", "{\"wisp\":\"replica\"}", "{\"wisp\":\"run\",\"version\":1}",
                             "{\"wisp\":\"replica\",\"version\":2}"}) {
        EXPECT_EQ(outcome_of(parse_replica_file(text)), "corrupt") << text;
    }
    EXPECT_EQ(outcome_after([](Json& json) { json["later"] = 1; }), "ok");
}

TEST(ReplicaFile, RefusesADamagedRecord) {
    const Json whole = Json::parse(write_replica_file(full_file()));
    for (const auto& [name, value] : whole["at"].items()) {
        EXPECT_EQ(outcome_after([&](Json& json) { json["at"].erase(name); }), "corrupt") << name;
        EXPECT_EQ(outcome_after([&](Json& json) { json["next"][name] = Json::array(); }), "corrupt")
            << name;
    }
    EXPECT_EQ(outcome_after([](Json& json) { json["at"]["commit_hash"] = "2"; }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) { json["at"]["run"] = ""; }), "corrupt");
}

TEST(ReplicaFile, RefusesNamesThatLeadOutOfTheFolder) {
    for (const char* bad : {"..", "../x", "a/b", "/etc/passwd", "", ".wisp"}) {
        EXPECT_EQ(outcome_after([&](Json& json) { json["files"] = {bad}; }), "corrupt") << bad;
        EXPECT_EQ(outcome_after([&](Json& json) { json["moving"] = {bad}; }), "corrupt") << bad;
        EXPECT_EQ(outcome_after([&](Json& json) { json["incoming"] = bad; }), "corrupt") << bad;
    }
    EXPECT_EQ(outcome_after([](Json& json) { json["files"] = {1}; }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) { json["files"] = "model"; }), "corrupt");
}

}  // namespace
}  // namespace wisp::testing
