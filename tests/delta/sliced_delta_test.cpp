// Deltas that are cut into tiles: read whole they are deltas like others, and each tile is proven
// by itself.
#include <gtest/gtest.h>

#include <cstring>

#include "base/try.hpp"
#include "checkpoint/needed_tiles.hpp"
#include "checkpoint/tiles.hpp"
#include "delta/delta_chain.hpp"
#include "delta/touched_words.hpp"
#include "sliced_model.hpp"
#include "wisp/inspect.hpp"

namespace wisp::testing {
namespace {

TEST(Tiles, LeadFromPositionsToElementsAndBack) {
    const TensorInfo tensor{"down_proj", Dtype::kBf16, {70, 48}};
    for (const TensorCut& cut :
         {TensorCut{7, 1}, TensorCut{7, 4}, TensorCut{10, 3}, TensorCut{6, 12}}) {
        ASSERT_TRUE(can_cut(tensor, cut));
        const TileGrid grid(tensor, cut);
        std::vector<int> seen(70 * 48);
        for (std::uint64_t i = 0; i < grid.count(); ++i) {
            const Tile tile = grid[i];
            std::vector<std::uint32_t> positions;
            for (std::uint32_t p = 0; p < tile.element_count(); ++p) positions.push_back(p);
            tile.spread(positions, 0);
            for (std::size_t p = 0; p < positions.size(); ++p) {
                const std::uint64_t at = tile.count_before(tile.first_element) + p;
                EXPECT_EQ(positions[p],
                          at / tile.width * tile.columns + tile.first_column + at % tile.width);
                EXPECT_EQ(tile.count_before(positions[p]) - tile.count_before(tile.first_element),
                          p);
                ++seen[positions[p]];
            }
            std::uint64_t in_runs = 0;
            tile.each_run(
                [&](std::uint64_t first, std::uint64_t past) { in_runs += past - first; });
            EXPECT_EQ(in_runs, positions.size());
        }
        EXPECT_EQ(std::ranges::count(seen, 1), 70 * 48) << "every element lies in one tile";
    }
}

TEST(Tiles, AreNeverCutInsideAWordOfTheDigest) {
    EXPECT_FALSE(can_cut({"w", Dtype::kBf16, {8, 24}}, {6, 4}));
    EXPECT_TRUE(can_cut({"w", Dtype::kBf16, {8, 24}}, {6, 2}));
    EXPECT_FALSE(can_cut({"w", Dtype::kF4, {8, 64}}, {6, 2})) << "columns are not elements";
    EXPECT_FALSE(can_cut({"w", Dtype::kBf16, {64}}, {6, 2})) << "a vector has no columns";
    EXPECT_FALSE(can_cut({"w", Dtype::kBf16, {8, 24}}, {6, 0}));
    for (const std::uint64_t columns : {1024ULL, 1000ULL, 12ULL, 4099ULL}) {
        const TensorInfo tensor{"o_proj.weight", Dtype::kBf16, {4096, columns}};
        EXPECT_TRUE(can_cut(tensor, choose_cut(tensor, 8)));
    }
    EXPECT_EQ(choose_cut({"o_proj.weight", Dtype::kBf16, {0, 64}}, 8).strips, 1U);
    EXPECT_EQ(choose_cut({"o_proj.weight", Dtype::kBf16, {2048, 768}}, 8).strips, 4U);
}

TEST(NeededTiles, AreThoseInWhichSomethingIsHeld) {
    const TensorInfo tensor{"w", Dtype::kBf16, {64, 64}};
    const auto needed = [&](const TensorCut& cut, std::vector<HeldPart> parts) {
        std::string text;
        for (const bool is : value_of(needed_tiles(tensor, {tensor, cut}, parts))) {
            text += is ? '1' : '0';
        }
        return text;
    };
    EXPECT_EQ(needed({10, 1}, {{0, {{32, 64}, {64, 1}}}}), "1100") << "the upper rows";
    EXPECT_EQ(needed({10, 1}, {{32 * 64 - 1, {{2, 1}}}}), "0110");
    EXPECT_EQ(needed({10, 1}, {{16, {{64, 64}, {16, 1}}}}), "1111") << "columns, of bands";
    EXPECT_EQ(needed({11, 4}, {{16, {{64, 64}, {16, 1}}}}), "01000100");
    EXPECT_EQ(needed({11, 4}, {{16, {{64, 64}, {17, 1}}}}), "01100110") << "one column more";
    EXPECT_EQ(needed({11, 4}, {{0, {{4096, 1}}}}), "11111111");
    EXPECT_EQ(needed({11, 4}, {{60, {{8, 1}}}}), "10010000") << "around the end of a row";
    EXPECT_EQ(needed({11, 4}, {}), "00000000");
    EXPECT_EQ(needed({11, 4}, {{0, {{0, 1}}}}), "00000000");
    EXPECT_EQ(outcome_of(needed_tiles(tensor, {tensor, {11, 4}},
                                      std::vector<HeldPart>{{4000, {{97, 1}}}})),
              "invalid");
}

TEST(SlicedDelta, TurnsTheOldStateIntoTheNewOneWhateverChanged) {
    for (const double share : {0.0, 0.004, 0.1, 1.0}) {
        const SlicedSteps steps(2, share);
        const ApplyReport report =
            value_of(apply(steps.state(0), {steps.delta(0, 1)}, steps.folder() / "out"));
        EXPECT_TRUE(steps.holds(steps.folder() / "out", 1)) << share;
        EXPECT_TRUE(report.base_proven && report.result_proven);
        EXPECT_EQ(value_of(verify(steps.delta(0, 1), steps.state(0))).result_matches, true);
    }
}

TEST(SlicedDelta, GoesIntoOneChainWithOthers) {
    const SlicedSteps steps(4);
    const std::vector<fs::path> mixed = {steps.delta(0, 1, 4), steps.delta(1, 2, 0),
                                         steps.delta(2, 3, 8)};
    value_of(apply(steps.state(0), mixed, steps.folder() / "out"));
    EXPECT_TRUE(steps.holds(steps.folder() / "out", 3));
    DiffOptions options;
    options.codec = Codec::kSwift;
    options.slices = 4;
    const Checkpoint base = value_of(Checkpoint::open(steps.state(0)));
    value_of(merge(base, mixed, steps.folder() / "merged", options));
    value_of(apply_in_place(steps.state(0), {steps.folder() / "merged"}));
    EXPECT_TRUE(steps.holds(steps.state(0), 3));
}

TEST(SlicedDelta, IsAMatterOfSwift) {
    const SlicedSteps steps(2);
    DiffOptions options;
    options.slices = 4;
    const Checkpoint base = value_of(Checkpoint::open(steps.state(0)));
    EXPECT_EQ(outcome_of(diff(base, base, steps.folder() / "delta", options)), "invalid");
    options.codec = Codec::kSwift;
    options.slices = 65;
    EXPECT_EQ(outcome_of(diff(base, base, steps.folder() / "delta", options)), "invalid");
}

/// The tiles of one half, over old words that somebody else holds.
class HalfOfADelta : public ::testing::Test {
  protected:
    HalfOfADelta() {
        Bytes file = read_bytes(steps_.delta(0, 1));
        head_ = static_cast<std::size_t>(head_bytes_of(file).value());
        const DeltaHead head =
            value_of(parse_delta_head(std::span(file).first(head_), file.size(), "delta"));
        const auto offsets = tile_offsets(head.directory);
        for (std::size_t t = 0; t < offsets.size(); ++t) {
            const DirectoryTensor& tensor = head.directory.tensors[t];
            const TileGrid grid(tensor.info, tensor.cut);
            const auto needed =
                value_of(needed_tiles(tensor.info, grid, held_.at(tensor.info.name)));
            for (std::size_t i = 0; i < needed.size(); ++i) {
                const auto at = static_cast<std::size_t>(head.blocks_at + offsets[t][i]);
                if (needed[i]) {
                    first_tile_ = std::min(first_tile_, at);
                } else {
                    std::memset(file.data() + at, 0,
                                static_cast<std::size_t>(tensor.block_bytes[i]));
                }
            }
        }
        write_bytes(path_, file);
    }
    Result<ChainSums> run(std::span<const Tensor> old_state) {
        const Schema schema = value_of(Checkpoint::open(steps_.state(0))).schema();
        WISP_ASSIGN(const DeltaChain chain, DeltaChain::open({path_}, schema, &held_));
        WISP_ASSIGN(TouchedWords touched, TouchedWords::of(chain, schema, 2));
        Bytes room(touched.room_bytes());
        touched.write_indices(room);
        std::byte* at = room.data();
        for (const TouchedTensor& tensor : touched.tensors()) {
            const Bytes& bytes = old_state[tensor.tensor].bytes;
            for (std::size_t i = 0; i < tensor.words; ++i) {
                const std::size_t word = load_le<std::uint32_t>(at + i * 4);
                std::memcpy(at + index_bytes_of(tensor.words) + i * 8, bytes.data() + word * 8,
                            std::min<std::size_t>(8, bytes.size() - word * 8));
            }
            at += room_bytes_of(tensor.words);
        }
        ChainSums sums;
        WISP_ASSIGN(const auto moved, touched.run(chain, room, sums, 2));
        for (const MovedBlock& block : moved) {
            for (std::size_t i = 0; i < block.changes.count(); ++i) {
                const auto element = block.first_element + block.changes.positions[i];
                const auto width = block.changes.element_bytes;
                EXPECT_EQ(
                    std::memcmp(block.changes.new_bits.data() + i * width,
                                steps_.tensors(1)[block.tensor].bytes.data() + element * width,
                                width),
                    0);
            }
        }
        WISP_TRY(chain.prove(std::nullopt, sums));
        return sums;
    }

    SlicedSteps steps_{2};
    HeldSlices held_ = steps_.half(1);
    fs::path path_ = steps_.folder() / "half.slices";
    std::size_t head_ = 0;
    std::size_t first_tile_ = SIZE_MAX;
};

TEST_F(HalfOfADelta, IsDecodedAndProvenWithoutTheRest) {
    const ChainSums sums = value_of(run(steps_.tensors(0)));
    EXPECT_GT(sums.changed_elements, 4000U);
    EXPECT_LT(sums.changed_elements, 6500U) << "of some 11,000 in all";
}

TEST_F(HalfOfADelta, IsRefusedOverOtherOldBits) {
    std::vector<Tensor> other = steps_.tensors(0);
    for (Tensor& tensor : other) {
        for (std::byte& byte : tensor.bytes) byte ^= std::byte{1};
    }
    const std::string outcome = outcome_of(run(other));
    EXPECT_TRUE(outcome == "wrong_base" || outcome == "corrupt") << outcome;
}

TEST_F(HalfOfADelta, NeedsEachOfItsTiles) {
    Bytes file = read_bytes(path_);
    file[first_tile_ + 20] ^= std::byte{1};
    write_bytes(path_, file);
    EXPECT_EQ(outcome_of(run(steps_.tensors(0))), "corrupt");
    held_ = steps_.half(0);
    EXPECT_EQ(outcome_of(run(steps_.tensors(0))), "corrupt") << "those of the other half";
}

TEST_F(HalfOfADelta, IsNoWholeDelta) {
    EXPECT_EQ(outcome_of(verify_delta_file(path_)), "corrupt");
}

}  // namespace
}  // namespace wisp::testing
