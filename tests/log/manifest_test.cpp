#include "log/manifest.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "log/sample_commits.hpp"

namespace wisp::testing {
namespace {

std::vector<std::uint64_t> anchor_seqs(const RoadMap& map) {
    std::vector<std::uint64_t> seqs;
    for (const AnchorEntry& anchor : map.anchors) seqs.push_back(anchor.state.seq);
    return seqs;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> road_seqs(const RoadMap& map) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> seqs;
    for (const RoadEntry& road : map.roads) seqs.emplace_back(road.from.seq, road.to.seq);
    return seqs;
}

using Seqs = std::vector<std::uint64_t>;
using Pairs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

TEST(RoadMap, KeepsAnchorsInOrderAndOnePerState) {
    RoadMap map;
    for (const std::uint64_t seq : {5, 1, 9, 3}) add_anchor(map, anchor_at(seq));
    add_anchor(map, anchor_at(3, 77));
    EXPECT_EQ(anchor_seqs(map), (Seqs{1, 3, 5, 9}));
    EXPECT_EQ(map.anchors[1].bytes(), 77U) << "the newer one replaces the older";
}

TEST(RoadMap, ARoadReplacesThoseInsideIt) {
    RoadMap map;
    add_road(map, road_between(5, 7));
    add_road(map, road_between(1, 3));
    add_road(map, road_between(3, 5));
    EXPECT_EQ(road_seqs(map), (Pairs{{1, 3}, {3, 5}, {5, 7}}));
    add_road(map, road_between(1, 5));
    EXPECT_EQ(road_seqs(map), (Pairs{{1, 5}, {5, 7}}));
    add_road(map, road_between(4, 7));
    EXPECT_EQ(road_seqs(map), (Pairs{{1, 5}, {4, 7}})) << "overlapping ones both stay";
    add_road(map, road_between(1, 5, 42));
    EXPECT_EQ(road_seqs(map), (Pairs{{1, 5}, {4, 7}}));
    EXPECT_EQ(map.roads[0].delta.bytes(), 42U);
}

TEST(RoadMap, LetsGoOfWhatStartsBelowTheFloor) {
    RoadMap map;
    for (const std::uint64_t seq : {1, 4, 8}) add_anchor(map, anchor_at(seq));
    map.roads = {road_between(1, 4), road_between(3, 9), road_between(4, 8), road_between(5, 6)};
    prune(map, 4);
    EXPECT_EQ(anchor_seqs(map), (Seqs{4, 8}));
    EXPECT_EQ(road_seqs(map), (Pairs{{4, 8}, {5, 6}}));
    prune(map, 0);
    EXPECT_EQ(anchor_seqs(map), (Seqs{4, 8}));
}

TEST(RoadMap, ThinningKeepsTheFirstAnchorOfEveryLineAndTheNewest) {
    RoadMap map;
    for (std::uint64_t seq = 1; seq <= 300; ++seq) {
        add_anchor(map, anchor_at(seq, 5000, seq <= 10 ? 1 : 2));
    }
    for (std::uint64_t seq = 1; seq <= 600; ++seq) add_road(map, road_between(seq, seq + 1));
    thin(map);
    EXPECT_EQ(map.anchors.size(), 256U);
    EXPECT_EQ(map.anchors.front().state.seq, 1U);
    EXPECT_TRUE(std::ranges::any_of(map.anchors, [](auto& a) { return a.state.seq == 11; }));
    EXPECT_EQ(map.anchors.back().state.seq, 300U);
    EXPECT_TRUE(std::ranges::is_sorted(anchor_seqs(map)));
    EXPECT_EQ(map.roads.size(), 512U);
    EXPECT_EQ(map.roads.back().to.seq, 601U);
    const RoadMap once = map;
    thin(map);
    EXPECT_EQ(map, once) << "twice is once";
}

TEST(RoadMap, AFullMapFitsIntoACommit) {
    Commit commit = map_commit();
    commit.seq = 10'000;
    commit.state = state_at(9'999);
    RoadMap map;
    for (std::uint64_t seq = 1; seq <= 2000; ++seq) {
        add_anchor(map, anchor_at(seq));
        add_road(map, road_between(seq, seq + 1));
    }
    thin(map);
    commit.map = map;
    const std::string text = write_commit(commit);
    EXPECT_LT(text.size(), std::size_t{1} << 20);
    EXPECT_TRUE(parse_commit(text, "it"));
}

TEST(RoadMap, AnchorsOfManyPartsFitIntoACommitToo) {
    Commit commit = map_commit();
    commit.seq = 10'000;
    commit.state = state_at(9'999);
    RoadMap map;
    for (std::uint64_t seq = 1; seq <= 100; ++seq) {
        AnchorEntry anchor = anchor_at(seq);
        const StoredPart part = anchor.files[0].parts[0];
        anchor.files[0].parts.assign(500, part);
        add_anchor(map, anchor);
        add_road(map, road_between(seq, seq + 1));
    }
    thin(map);
    EXPECT_EQ(anchor_seqs(map), (Seqs{1, 98, 99, 100}));
    commit.map = map;
    EXPECT_TRUE(parse_commit(write_commit(commit), "it"));
}

}  // namespace
}  // namespace wisp::testing
