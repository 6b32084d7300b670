#include "log/run_record.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "expect_result.hpp"
#include "log/sample_commits.hpp"

namespace wisp::testing {
namespace {

using Json = nlohmann::ordered_json;

RunRecord branch_record() {
    RunRecord record;
    record.nonce = hex_of('7', 32);
    record.created_ms = 1'700'000'000'000;
    record.exclusive = false;
    record.origin = RunRecord::Origin{"../origin", hex_of('8', 32), 40};
    return record;
}

std::string outcome_after(const std::function<void(Json&)>& change) {
    Json json = Json::parse(write_run_record(branch_record()));
    change(json);
    return outcome_of(parse_run_record(json.dump() + "\n", "format.json"));
}

TEST(RunRecord, KeepsEveryField) {
    const RunRecord written = branch_record();
    const RunRecord read = value_of(parse_run_record(write_run_record(written), "format.json"));
    EXPECT_EQ(read.nonce, written.nonce);
    EXPECT_EQ(read.created_ms, written.created_ms);
    EXPECT_FALSE(read.exclusive);
    EXPECT_EQ(read.origin, written.origin);

    RunRecord plain = written;
    plain.exclusive = true;
    plain.origin.reset();
    const RunRecord again = value_of(parse_run_record(write_run_record(plain), "format.json"));
    EXPECT_TRUE(again.exclusive);
    EXPECT_FALSE(again.origin);
}

TEST(RunRecord, SaysHowManySlicesItsDeltasHave) {
    constexpr std::uint64_t kLarge = std::uint64_t{64} << 30;
    RunRecord record = branch_record();
    EXPECT_EQ(slices_of(record, kLarge - 1), 0U);
    EXPECT_EQ(slices_of(record, kLarge), 4U);
    record.slices = 8;
    const RunRecord read = value_of(parse_run_record(write_run_record(record), "format.json"));
    EXPECT_EQ(slices_of(read, 1), 8U);
    record.slices = 0;
    EXPECT_EQ(slices_of(record, kLarge), 0U) << "not wanted";
    record.slices.reset();
    record.codec = Codec::kCompact;
    EXPECT_EQ(slices_of(record, kLarge), 0U);
    EXPECT_EQ(outcome_after([](Json& json) { json["slices"] = 65; }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) {
                  json["codec"] = "compact";
                  json["slices"] = 4;
              }),
              "corrupt");
}

TEST(RunRecord, ARunIsNamedByTheBytesOfItsRecord) {
    const std::string text = write_run_record(branch_record());
    const std::string run = run_id_of(text);
    EXPECT_EQ(run.size(), 32U);
    EXPECT_EQ(run, run_id_of(text));
    EXPECT_NE(run, run_id_of(text + " "));
    // The first half of the SHA-256 of no bytes at all.
    EXPECT_EQ(run_id_of(""), "e3b0c44298fc1c149afbf4c8996fb924");
}

TEST(RunRecord, RefusesWhatIsNoRun) {
    for (const char* text : {"", "{}", "[]", "null", "{\"wisp\":\"commit\",\"version\":1}",
                             "not json", "{\"wisp\":\"run\"}"}) {
        EXPECT_EQ(outcome_of(parse_run_record(text, "format.json")), "corrupt") << text;
    }
}

TEST(RunRecord, RefusesBadFields) {
    EXPECT_EQ(outcome_after([](Json& json) { json["nonce"] = "7"; }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) { json.erase("nonce"); }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) { json["created_ms"] = -1; }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) { json["mode"] = "shared"; }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) { json.erase("mode"); }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) { json["origin"] = 1; }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) { json["origin"]["at"] = "/etc"; }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) { json["origin"]["run"] = "8"; }), "corrupt");
    EXPECT_EQ(outcome_after([](Json& json) { json["origin"].erase("state_seq"); }), "corrupt");
}

TEST(RunRecord, SaysThatItNeedsANewerWisp) {
    EXPECT_EQ(outcome_after([](Json& json) { json["version"] = 2; }), "unsupported");
    EXPECT_EQ(outcome_after([](Json& json) { json["must"] = {"locks"}; }), "unsupported");
    EXPECT_EQ(outcome_after([](Json& json) { json["later"] = 1; }), "ok");
}

}  // namespace
}  // namespace wisp::testing
