#include "log/manifest.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "log/sample_commits.hpp"

namespace wisp::testing {
namespace {

std::vector<std::uint64_t> anchor_seqs(const Manifest& manifest) {
    std::vector<std::uint64_t> seqs;
    for (const AnchorEntry& anchor : manifest.anchors) seqs.push_back(anchor.state.seq);
    return seqs;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> merged_seqs(const Manifest& manifest) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> seqs;
    for (const MergedDelta& merged_delta : manifest.merged_deltas)
        seqs.emplace_back(merged_delta.from.seq, merged_delta.to.seq);
    return seqs;
}

using Seqs = std::vector<std::uint64_t>;
using Pairs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

TEST(Manifest, KeepsAnchorsInOrderAndOnePerState) {
    Manifest manifest;
    for (const std::uint64_t seq : {5, 1, 9, 3}) add_anchor(manifest, anchor_at(seq));
    add_anchor(manifest, anchor_at(3, 77));
    EXPECT_EQ(anchor_seqs(manifest), (Seqs{1, 3, 5, 9}));
    EXPECT_EQ(manifest.anchors[1].bytes(), 77U) << "the newer one replaces the older";
}

TEST(Manifest, AMergedDeltaReplacesThoseInsideIt) {
    Manifest manifest;
    add_merged_delta(manifest, merged_between(5, 7));
    add_merged_delta(manifest, merged_between(1, 3));
    add_merged_delta(manifest, merged_between(3, 5));
    EXPECT_EQ(merged_seqs(manifest), (Pairs{{1, 3}, {3, 5}, {5, 7}}));
    add_merged_delta(manifest, merged_between(1, 5));
    EXPECT_EQ(merged_seqs(manifest), (Pairs{{1, 5}, {5, 7}}));
    add_merged_delta(manifest, merged_between(4, 7));
    EXPECT_EQ(merged_seqs(manifest), (Pairs{{1, 5}, {4, 7}})) << "overlapping ones both stay";
    add_merged_delta(manifest, merged_between(1, 5, 42));
    EXPECT_EQ(merged_seqs(manifest), (Pairs{{1, 5}, {4, 7}}));
    EXPECT_EQ(manifest.merged_deltas[0].delta.bytes(), 42U);
}

TEST(Manifest, LetsGoOfWhatStartsBelowTheFloor) {
    Manifest manifest;
    for (const std::uint64_t seq : {1, 4, 8}) add_anchor(manifest, anchor_at(seq));
    manifest.merged_deltas = {merged_between(1, 4), merged_between(3, 9), merged_between(4, 8),
                              merged_between(5, 6)};
    prune(manifest, 4);
    EXPECT_EQ(anchor_seqs(manifest), (Seqs{4, 8}));
    EXPECT_EQ(merged_seqs(manifest), (Pairs{{4, 8}, {5, 6}}));
    prune(manifest, 0);
    EXPECT_EQ(anchor_seqs(manifest), (Seqs{4, 8}));
}

TEST(Manifest, ThinningKeepsTheFirstAnchorOfEveryChainAndTheNewest) {
    Manifest manifest;
    for (std::uint64_t seq = 1; seq <= 300; ++seq) {
        add_anchor(manifest, anchor_at(seq, 5000, seq <= 10 ? 1 : 2));
    }
    for (std::uint64_t seq = 1; seq <= 600; ++seq)
        add_merged_delta(manifest, merged_between(seq, seq + 1));
    thin(manifest);
    EXPECT_EQ(manifest.anchors.size(), 256U);
    EXPECT_EQ(manifest.anchors.front().state.seq, 1U);
    EXPECT_TRUE(std::ranges::any_of(manifest.anchors, [](auto& a) { return a.state.seq == 11; }));
    EXPECT_EQ(manifest.anchors.back().state.seq, 300U);
    EXPECT_TRUE(std::ranges::is_sorted(anchor_seqs(manifest)));
    EXPECT_EQ(manifest.merged_deltas.size(), 512U);
    EXPECT_EQ(manifest.merged_deltas.back().to.seq, 601U);
    const Manifest once = manifest;
    thin(manifest);
    EXPECT_EQ(manifest, once) << "twice is once";
}

TEST(Manifest, AFullManifestFitsIntoACommit) {
    Commit commit = manifest_commit();
    commit.seq = 10'000;
    commit.state = state_at(9'999);
    Manifest manifest;
    for (std::uint64_t seq = 1; seq <= 2000; ++seq) {
        add_anchor(manifest, anchor_at(seq));
        add_merged_delta(manifest, merged_between(seq, seq + 1));
    }
    thin(manifest);
    commit.manifest = manifest;
    const std::string text = write_commit(commit);
    EXPECT_LT(text.size(), std::size_t{1} << 20);
    EXPECT_TRUE(parse_commit(text, "it"));
}

TEST(Manifest, AnchorsOfManyPartsFitIntoACommitToo) {
    Commit commit = manifest_commit();
    commit.seq = 10'000;
    commit.state = state_at(9'999);
    Manifest manifest;
    for (std::uint64_t seq = 1; seq <= 100; ++seq) {
        AnchorEntry anchor = anchor_at(seq);
        const StoredPart part = anchor.files[0].parts[0];
        anchor.files[0].parts.assign(500, part);
        add_anchor(manifest, anchor);
        add_merged_delta(manifest, merged_between(seq, seq + 1));
    }
    thin(manifest);
    EXPECT_EQ(anchor_seqs(manifest), (Seqs{1, 98, 99, 100}));
    commit.manifest = manifest;
    EXPECT_TRUE(parse_commit(write_commit(commit), "it"));
}

}  // namespace
}  // namespace wisp::testing
