#include "log/commit.hpp"
#include "log/tombstone.hpp"

#include <gtest/gtest.h>

#include "base/limits.hpp"
#include "expect_result.hpp"
#include "log/commit_outcome.hpp"
#include "log/sample_commits.hpp"

namespace wisp::testing {
namespace {

void expect_equal(const Commit& read, const Commit& written) {
    EXPECT_EQ(read.run, written.run);
    EXPECT_EQ(read.seq, written.seq);
    EXPECT_EQ(read.epoch, written.epoch);
    EXPECT_EQ(read.kind, written.kind);
    EXPECT_EQ(read.previous, written.previous);
    EXPECT_EQ(read.ancestors, written.ancestors);
    EXPECT_EQ(read.nonce, written.nonce);
    EXPECT_EQ(read.writer, written.writer);
    EXPECT_EQ(read.owner, written.owner);
    EXPECT_EQ(read.time_ms, written.time_ms);
    EXPECT_EQ(read.expires_ms, written.expires_ms);
    EXPECT_EQ(read.state, written.state);
    EXPECT_EQ(read.schema, written.schema);
    EXPECT_EQ(read.total_elements, written.total_elements);
    EXPECT_EQ(read.changed_elements, written.changed_elements);
    EXPECT_EQ(read.base, written.base);
    EXPECT_EQ(read.delta, written.delta);
    EXPECT_EQ(read.rewind_from, written.rewind_from);
    EXPECT_EQ(read.floor, written.floor);
    EXPECT_EQ(read.anchor_seq, written.anchor_seq);
    EXPECT_EQ(read.manifest_at, written.manifest_at);
    EXPECT_EQ(read.manifest, written.manifest);
}

Commit round_trip(const Commit& commit) {
    const std::string text = write_commit(commit);
    EXPECT_EQ(text.find('\n'), text.size() - 1) << "one line";
    Commit read = value_of(parse_commit(text, "it")).commit;
    expect_equal(read, commit);
    EXPECT_EQ(write_commit(read), text) << "one way to write it";
    return read;
}

TEST(Commit, KeepsEveryFieldOfAStep) {
    round_trip(step_commit());
}

TEST(Commit, KeepsEveryFieldOfAMap) {
    round_trip(manifest_commit());
}

TEST(Commit, LeavesOutWhatThereIsNot) {
    Commit commit = step_commit();
    commit.seq = 1;
    commit.state = state_at(1);
    commit.previous = {};
    commit.ancestors.clear();
    commit.owner.clear();
    commit.expires_ms = 0;
    commit.base = commit.state.digest;
    commit.delta.reset();
    commit.rewind_from.reset();
    commit.floor = commit.anchor_seq = 0;
    commit.manifest_at = {};
    round_trip(commit);
    const std::string text = write_commit(commit);
    for (const char* absent :
         {"previous", "ancestors", "owner", "expires_ms", "delta\":{", "rewind_from", "\"map"}) {
        EXPECT_EQ(text.find(absent), std::string::npos) << absent;
    }
}

TEST(Commit, KeepsEveryKind) {
    for (const CommitKind kind : {CommitKind::kAnchor, CommitKind::kMerge, CommitKind::kFloor,
                                  CommitKind::kFence, CommitKind::kHeartbeat}) {
        Commit commit = manifest_commit();
        commit.kind = kind;
        EXPECT_EQ(round_trip(commit).kind, kind) << name_of(kind);
    }
    Commit branch = manifest_commit();
    branch.kind = CommitKind::kBranch;
    branch.state = state_at(7);
    branch.base = branch.state.digest;
    round_trip(branch);
}

TEST(Commit, KeepsTheLargestNumbers) {
    Commit commit = step_commit();
    commit.seq = commit.state.seq = ~std::uint64_t{0};
    commit.state.cumulative_delta_bytes = commit.state.step = commit.epoch = ~std::uint64_t{0};
    commit.time_ms = std::int64_t{1} << 53;
    round_trip(commit);
}

/// A chain in which only some slots hold commits, as void objects leave it.
std::vector<Commit> chain_over(const std::vector<std::uint64_t>& seqs) {
    std::vector<Commit> chain;
    for (const std::uint64_t seq : seqs) {
        Commit commit = step_commit();
        commit.seq = seq;
        commit.previous = {};
        commit.ancestors.clear();
        if (!chain.empty()) {
            const Commit& parent = chain.back();
            commit.previous = {parent.seq, std::to_string(parent.seq)};
            commit.ancestors = ancestors_after(parent, std::to_string(parent.seq), seq);
        }
        chain.push_back(std::move(commit));
    }
    return chain;
}

TEST(Commit, NamesForEachPowerOfSixteenTheNewestOfTheStretchBefore) {
    std::vector<std::uint64_t> seqs;
    for (std::uint64_t seq = 1; seq <= 6000; ++seq) {
        if (seq % 7 != 3 && seq % 256 != 255) seqs.push_back(seq);
    }
    for (const Commit& commit : chain_over(seqs)) {
        std::vector<std::uint64_t> expected;
        std::uint64_t lowest = commit.previous.seq;
        for (unsigned bits = 4; bits < 16; bits += 4) {
            const auto after = std::ranges::lower_bound(seqs, (commit.seq >> bits) << bits);
            if (after == seqs.begin()) break;
            if (*std::prev(after) == lowest) continue;
            expected.push_back(lowest = *std::prev(after));
        }
        std::vector<std::uint64_t> named;
        for (const CommitRef& ref : commit.ancestors) {
            named.push_back(ref.seq);
            EXPECT_EQ(ref.hash, std::to_string(ref.seq));
        }
        ASSERT_EQ(named, expected) << commit.seq;
    }
}

TEST(Commit, LeadsBackAnyDistanceInAFewReads) {
    std::vector<std::uint64_t> seqs(100'000);
    for (std::size_t i = 0; i < seqs.size(); ++i) seqs[i] = i + 1;
    const std::vector<Commit> chain = chain_over(seqs);
    for (const std::uint64_t target : {1, 2, 15, 16, 17, 255, 4096, 50'000, 99'983, 99'999}) {
        std::uint64_t at = seqs.size();
        int reads = 0;
        while (at != target) {
            const Commit& commit = chain[at - 1];
            at = commit.previous.seq;
            for (const CommitRef& ref : commit.ancestors) {
                if (ref.seq >= target) at = ref.seq;
            }
            ASSERT_LE(++reads, 16 * 5) << target;
        }
    }
}

TEST(Commit, PassesOverKeysItDoesNotKnow) {
    Json json = Json::parse(write_commit(step_commit()));
    json["later"] = {{"more", {1, 2, 3}}};
    expect_equal(value_of(parse_commit(json.dump() + "\n", "it")).commit, step_commit());
}

TEST(Commit, HandsTheRestToTheSignature) {
    const std::string body = write_commit(step_commit());
    const std::string object = body + "ed25519 and whatever\nfollows";
    const auto parsed = value_of(parse_commit(object, "it"));
    EXPECT_EQ(parsed.body, body);
    EXPECT_EQ(parsed.signature_block, "ed25519 and whatever\nfollows");
    EXPECT_EQ(value_of(parse_commit(body, "it")).signature_block, "");
}

TEST(Commit, RefusesWhatIsNotOneLineOfJson) {
    const std::string body = write_commit(step_commit());
    EXPECT_EQ(parse_outcome(""), "corrupt");
    EXPECT_EQ(parse_outcome("\n"), "corrupt");
    EXPECT_EQ(parse_outcome("[]\n"), "corrupt");
    EXPECT_EQ(parse_outcome("7\n"), "corrupt");
    EXPECT_EQ(parse_outcome(body.substr(0, body.size() - 1)), "corrupt") << "no newline";
    EXPECT_EQ(parse_outcome("\n" + body), "corrupt");
    EXPECT_EQ(parse_outcome(body.substr(0, body.size() - 1) + " {}\n"), "corrupt");
    EXPECT_EQ(parse_outcome(std::string("{\"a\":\"\0\"}\n", 10)), "corrupt") << "zero byte";
    EXPECT_EQ(parse_outcome("{\"wisp\":\"\xff\"}\n"), "corrupt") << "not UTF-8";
    for (std::size_t cut = 0; cut + 1 < body.size(); cut += 7) {
        EXPECT_EQ(parse_outcome(body.substr(0, cut)), "corrupt") << cut;
        EXPECT_EQ(parse_outcome(body.substr(0, cut) + "\n"), "corrupt") << cut;
    }
}

TEST(Commit, RefusesAKeyTwiceAtAnyDepth) {
    std::string text = write_commit(step_commit());
    text.insert(1, "\"seq\":7,");
    EXPECT_NE(text_of(parse_commit(text, "it")).find("twice"), std::string::npos);
    text = write_commit(step_commit());
    text.insert(text.find("\"step\":"), "\"step\":70,");
    EXPECT_NE(text_of(parse_commit(text, "it")).find("twice"), std::string::npos);
    text = write_commit(step_commit());
    text.insert(text.find("{\"key\":") + 1, "\"later\":1,\"later\":1,");
    EXPECT_NE(text_of(parse_commit(text, "it")).find("twice"), std::string::npos);
}

TEST(Commit, RefusesNestingThatGoesTooDeep) {
    for (const std::string open : {"[", "{\"a\":"}) {
        const std::string close = open == "[" ? "]" : "}";
        std::string deep = "1";
        // The record itself is the first level.
        for (unsigned level = 1; level < limits::kJsonDepth; ++level) deep = open + deep + close;
        std::string text = write_commit(step_commit());
        std::string allowed = text;
        allowed.insert(1, "\"x\":" + deep + ",");
        EXPECT_EQ(parse_outcome(allowed), "ok");
        text.insert(1, "\"x\":" + open + deep + close + ",");
        EXPECT_NE(text_of(parse_commit(text, "it")).find("too deep"), std::string::npos);
    }
}

TEST(Commit, RefusesADeepBombQuickly) {
    EXPECT_EQ(parse_outcome("{\"a\":" + std::string(500'000, '[') + "\n"), "corrupt");
}

TEST(Commit, SaysThatItNeedsANewerWisp) {
    const auto outcome = [](const std::function<void(Json&)>& change) {
        Json json = Json::parse(write_commit(step_commit()));
        change(json);
        return parse_outcome(json.dump() + "\n");
    };
    EXPECT_EQ(outcome([](Json& json) { json["version"] = 2; }), "unsupported");
    EXPECT_EQ(outcome([](Json& json) { json["must"] = {"sharded"}; }), "unsupported");
    EXPECT_EQ(outcome([](Json& json) { json["must"] = Json::array(); }), "ok");
    EXPECT_EQ(outcome([](Json& json) { json["must"] = 1; }), "corrupt");
    // A newer version may have any other fields.
    EXPECT_EQ(parse_outcome("{\"wisp\":\"commit\",\"version\":2}\n"), "unsupported");
    EXPECT_EQ(outcome([](Json& json) { json["wisp"] = "tombstone"; }), "corrupt");
}

TEST(Commit, AnInterleavedFileIsAnnouncedToReadersThatDoNotKnowIt) {
    Commit step = step_commit();
    step.delta->interleaved = true;
    const std::string text = write_commit(step);
    EXPECT_NE(text.find("\"must\":[\"interleaved\"]"), std::string::npos);
    EXPECT_EQ(value_of(parse_commit(text, "it")).commit.delta, step.delta);
    Commit manifest = manifest_commit();
    manifest.manifest->anchors[0].files[0].interleaved = true;
    EXPECT_EQ(value_of(parse_commit(write_commit(manifest), "it")).commit.manifest,
              manifest.manifest);
    Json json = Json::parse(text);
    json.erase("must");
    EXPECT_EQ(parse_outcome(json.dump() + "\n"), "corrupt");
    json["must"] = {"interleaved", "knitted"};
    EXPECT_EQ(parse_outcome(json.dump() + "\n"), "unsupported");
    json["must"] = {"interleaved"};
    json["delta"]["interleaved"] = 1;
    EXPECT_EQ(parse_outcome(json.dump() + "\n"), "corrupt");
}

TEST(Commit, RefusesMoreThanAMebibyte) {
    std::string text = write_commit(step_commit());
    text.insert(1, std::string(limits::kCommitBytes - text.size(), ' '));
    EXPECT_EQ(parse_outcome(text), "ok");
    text.insert(1, " ");
    EXPECT_NE(text_of(parse_commit(text, "it")).find("more than 1 MiB"), std::string::npos);
}

TEST(Commit, SpellsForeignTextSafely) {
    const std::string text =
        refusal(step_commit(), [](Json& json) { json["kind"] = "\x1b[31mred\n"; });
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(Tombstone, KeepsItsFields) {
    const std::string text = write_tombstone({hex_of('1', 32), 7, 9});
    const auto read = parse_tombstone(text);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->run, hex_of('1', 32));
    EXPECT_EQ(read->seq, 7U);
    EXPECT_EQ(read->floor, 9U);
}

TEST(Tombstone, IsNothingElse) {
    const std::string text = write_tombstone({hex_of('1', 32), 7, 9});
    EXPECT_FALSE(parse_tombstone(""));
    EXPECT_FALSE(parse_tombstone("{}"));
    EXPECT_FALSE(parse_tombstone(write_commit(step_commit())));
    EXPECT_FALSE(parse_tombstone(text + "{}"));
    EXPECT_FALSE(parse_tombstone(std::string(1024, ' ') + text)) << "too large";
    Json json = Json::parse(text);
    json["seq"] = -1;
    EXPECT_FALSE(parse_tombstone(json.dump()));
    json = Json::parse(text);
    json["run"] = "1";
    EXPECT_FALSE(parse_tombstone(json.dump()));
    EXPECT_EQ(parse_outcome(text), "corrupt") << "nor is it a commit";
}

}  // namespace
}  // namespace wisp::testing
