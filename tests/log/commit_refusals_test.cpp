// What makes a commit unsound although it is valid JSON: each rule broken once.
#include "log/commit.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/limits.hpp"
#include "expect_result.hpp"
#include "log/commit_outcome.hpp"
#include "log/sample_commits.hpp"

namespace wisp::testing {
namespace {

void expect_refused(const Commit& commit, const std::function<void(Json&)>& change,
                    const std::string& because) {
    const std::string text = refusal(commit, change);
    EXPECT_NE(text.find(because), std::string::npos) << "said: " << text;
}

TEST(CommitRefusal, OfNumbersThatAreNotWholeAndPositive) {
    for (const char* name : {"seq", "epoch", "floor", "anchor_seq", "total_elements",
                             "changed_elements", "time_ms", "expires_ms", "rewind_from"}) {
        for (const Json& bad : {Json(-1), Json("7"), Json(true), Json(nullptr), Json::array()}) {
            EXPECT_NE(refusal(step_commit(), [&](Json& json) { json[name] = bad; }), "")
                << name << " " << bad;
        }
        expect_refused(step_commit(), [&](Json& json) { json[name] = 7.0; }, "not whole");
    }
    std::string text = write_commit(step_commit());
    text.replace(text.find("\"seq\":7"), 7, "\"seq\":18446744073709551616");
    EXPECT_EQ(parse_outcome(text), "corrupt") << "2^64 is read as a fraction";
    expect_refused(step_commit(), [](Json& json) { json["time_ms"] = (1ULL << 53) + 1; }, "time");
}

TEST(CommitRefusal, OfAMissingField) {
    const Json step = Json::parse(write_commit(step_commit()));
    const std::set<std::string> optional = {"owner",     "expires_ms",  "rewind_from", "delta",
                                            "ancestors", "manifest_at", "previous",    "check"};
    for (const auto& [name, value] : step.items()) {
        if (optional.contains(name)) continue;
        EXPECT_NE(refusal(step_commit(), [&](Json& json) { json.erase(name); }), "") << name;
    }
    for (const char* name :
         {"seq", "step", "digest", "chain_id", "cumulative_delta_bytes", "state_index"}) {
        expect_refused(step_commit(), [&](Json& json) { json["state"].erase(name); }, name);
        expect_refused(
            manifest_commit(),
            [&](Json& json) { json["manifest"]["merged_deltas"][0]["to"].erase(name); }, name);
    }
    for (const char* name : {"key", "bytes", "sha256"}) {
        expect_refused(
            step_commit(), [&](Json& json) { json["delta"]["parts"][0].erase(name); }, name);
    }
}

TEST(CommitRefusal, OfHexThatIsNot) {
    const auto refuse = [](const char* name, const std::string& text) {
        expect_refused(step_commit(), [&](Json& json) { json[name] = text; }, name);
    };
    refuse("run", hex_of('1', 31));
    refuse("run", hex_of('1', 33));
    refuse("run", hex_of('A', 32));
    refuse("run", hex_of('g', 32));
    refuse("nonce", "");
    refuse("owner", hex_of('4', 64));
    expect_refused(
        step_commit(), [](Json& json) { json["previous"]["hash"] = hex_of('2', 63); }, "hash");
    refuse("schema", hex_of(' ', 32));
    refuse("base", hex_of('A', 32));
    expect_refused(
        step_commit(), [](Json& json) { json["state"]["digest"] = hex_of('1', 33); }, "digest");
    expect_refused(
        step_commit(), [](Json& json) { json["delta"]["parts"][0]["sha256"] = hex_of('D', 64); },
        "sha256");
}

TEST(CommitRefusal, OfKeysThatLeadElsewhere) {
    for (const std::string key :
         {"", "deltas", "deltas/", "deltas/..", "deltas/.hidden", "deltas/a/b", "deltas/../format",
          "/deltas/a", "commits/00000000000000000001", "latest", "format.json", "../deltas/a",
          "deltas/a b", "deltas/a\\b", "deltas/\xc3\xa4", "Deltas/a"}) {
        expect_refused(
            step_commit(), [&](Json& json) { json["delta"]["parts"][0]["key"] = key; }, "the key");
    }
    expect_refused(
        step_commit(),
        [](Json& json) { json["delta"]["parts"][0]["key"] = "deltas/" + hex_of('a', 201); },
        "the key");
}

TEST(CommitRefusal, OfFileNamesThatAreNotPlain) {
    for (const std::string name : {"", ".", "..", ".wisp", "../model.safetensors", "a/b", "a\\b",
                                   "/etc/passwd", "a\nb", "model safetensors"}) {
        expect_refused(
            manifest_commit(),
            [&](Json& json) { json["manifest"]["anchors"][0]["files"][0]["name"] = name; },
            "the file name");
    }
    expect_refused(
        manifest_commit(),
        [](Json& json) { json["manifest"]["anchors"][0]["files"][0].erase("name"); },
        "without a name");
}

TEST(CommitRefusal, OfPathsToRunsThatAreNone) {
    for (const std::string at : {"", "other", "/other", "../", "..//other", "../a/../b", "../.",
                                 "../a/", "../a\nb", "./../a"}) {
        expect_refused(
            step_commit(), [&](Json& json) { json["delta"]["at"] = at; }, "a path to a run");
    }
}

TEST(CommitRefusal, OfHeadsThatAreNotOfTheirFile) {
    Commit sliced = step_commit();
    sliced.delta->head = StoredHead{sliced.delta->bytes(), sliced.delta->parts[0].sha256};
    EXPECT_EQ(value_of(parse_commit(write_commit(sliced), "it")).commit.delta, sliced.delta);
    const auto with = [&](const char* field, const Json& value) {
        expect_refused(sliced, [&](Json& json) { json["delta"]["head"][field] = value; }, "head");
    };
    with("bytes", 0);
    with("bytes", sliced.delta->bytes() + 1);
    expect_refused(sliced, [](Json& json) { json["delta"]["head"]["sha256"] = "12"; }, "sha256");
    expect_refused(
        sliced,
        [](Json& json) {
            json["must"] = {"interleaved"};
            json["delta"]["interleaved"] = true;
        },
        "head");
}

TEST(CommitRefusal, OfFilesWithoutPartsAndSizesThatOverflow) {
    expect_refused(
        step_commit(), [](Json& json) { json["delta"]["parts"] = Json::array(); }, "without parts");
    expect_refused(
        step_commit(), [](Json& json) { json["delta"].erase("parts"); }, "without parts");
    expect_refused(step_commit(), [](Json& json) { json["delta"]["parts"] = 7; }, "not a list");
    expect_refused(step_commit(), [](Json& json) { json["delta"] = "deltas/a"; }, "an object");
    expect_refused(
        step_commit(),
        [](Json& json) {
            auto& parts = json["delta"]["parts"];
            parts[0]["bytes"] = ~std::uint64_t{0};
            parts.push_back(parts[0]);
        },
        "overflow");
}

TEST(CommitRefusal, OfListsThatAreTooLong) {
    Commit commit = manifest_commit();
    expect_refused(
        commit,
        [](Json& json) {
            Json entry = Json::object();
            json["manifest"]["merged_deltas"] = Json(limits::kManifestEntries + 1, entry);
        },
        "more than 4096");
    expect_refused(
        commit, [](Json& json) { json["delta"] = {{"parts", Json(limits::kPartsPerFile + 1, 1)}}; },
        "more than 10000");
}

TEST(CommitRefusal, OfAManifestOutOfOrder) {
    expect_refused(
        manifest_commit(),
        [](Json& json) {
            std::swap(json["manifest"]["anchors"][0], json["manifest"]["anchors"][1]);
        },
        "anchors out of order");
    expect_refused(
        manifest_commit(),
        [](Json& json) { json["manifest"]["anchors"][1] = json["manifest"]["anchors"][0]; },
        "anchors out of order");
    expect_refused(
        manifest_commit(), [](Json& json) { json["manifest"]["anchors"][1]["state"]["seq"] = 7; },
        "yet to come");
    expect_refused(
        manifest_commit(),
        [](Json& json) { json["manifest"]["anchors"][0]["files"] = Json::array(); },
        "without files");
    expect_refused(
        manifest_commit(),
        [](Json& json) { json["manifest"]["merged_deltas"][1]["to"]["seq"] = 7; }, "forward");
    expect_refused(
        manifest_commit(),
        [](Json& json) { json["manifest"]["merged_deltas"][1]["from"]["seq"] = 6; }, "forward");
}

TEST(CommitRefusal, OfASlicedAnchorThatIsNotOneDelta) {
    Commit commit = manifest_commit();
    AnchorEntry& anchor = commit.manifest->anchors[0];
    anchor.sliced = true;
    anchor.files.push_back(anchor.files[0]);  // of which only the header is there
    anchor.files[0].name.clear();
    anchor.files[0].head = StoredHead{7, hex_of('c', 64)};
    const auto parsed = parse_commit(write_commit(commit), "it");
    ASSERT_TRUE(parsed) << parsed.error().text;
    EXPECT_EQ(parsed->commit.manifest->anchors, commit.manifest->anchors);
    const auto files = [](Json& json) -> Json& { return json["manifest"]["anchors"][0]["files"]; };
    expect_refused(
        commit, [&](Json& json) { files(json)[0]["name"] = "model.safetensors"; }, "not one delta");
    expect_refused(commit, [&](Json& json) { files(json)[1].erase("name"); }, "not one delta");
    expect_refused(commit, [&](Json& json) { files(json)[0].erase("head"); }, "has a head");
    expect_refused(
        commit,
        [](Json& json) {
            json["manifest"]["anchors"][0]["base"] = hex_of('1', 32);
            json["manifest"]["anchors"][0]["base_name"] = "a";
        },
        "over a base");
    expect_refused(
        manifest_commit(),
        [](Json& json) {
            Json& listed = json["manifest"]["anchors"][1]["files"];
            listed.push_back(listed[0]);
        },
        "not one delta");
}

TEST(CommitRefusal, OfAManifestThatIsNotWhereItSays) {
    const Json at = Json::parse(write_commit(step_commit()))["manifest_at"];
    expect_refused(manifest_commit(), [&](Json& json) { json["manifest_at"] = at; }, "a manifest");
    expect_refused(step_commit(), [](Json& json) { json["manifest_at"]["seq"] = 7; }, "a manifest");
    expect_refused(step_commit(), [](Json& json) { json["manifest_at"]["seq"] = 8; }, "a manifest");
    expect_refused(step_commit(), [](Json& json) { json["manifest_at"]["seq"] = 0; }, "no commit");
    expect_refused(step_commit(), [](Json& json) { json["manifest_at"].erase("hash"); }, "hash");
}

TEST(CommitRefusal, OfAChainThatDoesNotLeadBack) {
    expect_refused(step_commit(), [](Json& json) { json["previous"]["seq"] = 7; }, "lead back");
    expect_refused(step_commit(), [](Json& json) { json["previous"]["seq"] = 0; }, "no commit");
    expect_refused(step_commit(), [](Json& json) { json["ancestors"][0]["seq"] = 6; }, "lead back");
    expect_refused(step_commit(), [](Json& json) { json["ancestors"][1]["seq"] = 3; }, "lead back");
    expect_refused(step_commit(), [](Json& json) { json["ancestors"][1]["seq"] = 0; }, "no commit");
    expect_refused(
        step_commit(),
        [](Json& json) {
            for (int i = 0; i < 20; ++i) json["ancestors"].push_back(json["ancestors"][0]);
        },
        "ancestors");
}

TEST(CommitRefusal, OfSeqsThatDoNotFitEachOther) {
    expect_refused(step_commit(), [](Json& json) { json["epoch"] = 0; }, "epoch of 0");
    expect_refused(
        step_commit(),
        [](Json& json) {
            json["seq"] = 1;
            json["state"]["seq"] = 1;
        },
        "chain");
    expect_refused(step_commit(), [](Json& json) { json.erase("previous"); }, "chain");
    expect_refused(step_commit(), [](Json& json) { json["state"]["seq"] = 8; }, "yet to come");
    expect_refused(step_commit(), [](Json& json) { json["floor"] = 8; }, "a floor");
    expect_refused(step_commit(), [](Json& json) { json["anchor_seq"] = 8; }, "a floor or anchor");
}

TEST(CommitRefusal, OfAKindThatDoesNotFit) {
    for (const char* kind : {"merge", "floor", "fence", "heartbeat"}) {
        expect_refused(step_commit(), [&](Json& json) { json["kind"] = kind; }, "kind");
    }
    for (const char* kind : {"delta", "branch"}) {
        expect_refused(manifest_commit(), [&](Json& json) { json["kind"] = kind; }, "kind");
    }
    expect_refused(step_commit(), [](Json& json) { json["kind"] = "other"; }, "unknown kind");
    expect_refused(step_commit(), [](Json& json) { json["kind"] = "Delta"; }, "unknown kind");
}

TEST(CommitRefusal, OfADeltaWithoutABase) {
    expect_refused(step_commit(), [](Json& json) { json.erase("base"); }, "from nowhere");
    expect_refused(
        step_commit(), [](Json& json) { json.erase("delta"); }, "a change without a delta");
    expect_refused(
        step_commit(),
        [](Json& json) {
            json.erase("base");
            json.erase("delta");
        },
        "without a base");
    expect_refused(
        manifest_commit(),
        [](Json& json) {
            json["delta"] = Json::parse(write_commit(step_commit()))["delta"];
            json["base"] = hex_of('1', 32);
        },
        "from nowhere");
}

}  // namespace
}  // namespace wisp::testing
