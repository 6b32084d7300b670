#include <gtest/gtest.h>

#include "checkpoint/shard_index.hpp"
#include "temp_checkpoints.hpp"
#include "wisp/checkpoint.hpp"

namespace wisp::testing {
namespace {

Tensor bytes_tensor(std::string name, std::size_t count, int fill) {
    return {{std::move(name), Dtype::kU8, {count}}, Bytes(count, static_cast<std::byte>(fill))};
}

class CheckpointFolder : public ::testing::Test {
  protected:
    void SetUp() override {
        write_bytes(folder_ / "m-1.safetensors",
                    safetensors_file({bytes_tensor("b", 3, 2)}, {{"step", "4"}}));
        write_bytes(folder_ / "m-2.safetensors", safetensors_file({bytes_tensor("a", 5, 1)}));
        write_index(R"({"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors"}})");
    }
    void write_index(std::string_view json) {
        write_bytes(folder_ / kShardIndexName, as_bytes(json));
    }
    std::string outcome() const { return outcome_of(Checkpoint::open(folder_.path())); }
    TempFolder folder_;
};

TEST_F(CheckpointFolder, IsReadAsOneSchemaSortedByName) {
    const Checkpoint checkpoint = value_of(Checkpoint::open(folder_.path()));
    EXPECT_TRUE(checkpoint.is_folder());
    ASSERT_EQ(checkpoint.schema().tensors().size(), 2U);
    EXPECT_EQ(checkpoint.schema().tensors()[0].name, "a");
    EXPECT_EQ(checkpoint.bytes(0).size(), 5U);
    EXPECT_EQ(checkpoint.bytes(0)[4], std::byte{1});
    EXPECT_EQ(checkpoint.place(0).file, 1U);
    EXPECT_EQ(checkpoint.bytes(1)[2], std::byte{2});
    EXPECT_EQ(checkpoint.metadata().at("step"), "4") << "of the first file";
}

TEST_F(CheckpointFolder, RejectsATensorTheIndexDoesNotName) {
    write_index(R"({"weight_map":{"a":"m-2.safetensors","c":"m-1.safetensors"}})");
    EXPECT_EQ(outcome(), "corrupt");
}

TEST_F(CheckpointFolder, RejectsATensorInAnotherFileThanTheIndexSays) {
    write_index(R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
    EXPECT_EQ(outcome(), "corrupt");
}

TEST_F(CheckpointFolder, RejectsATensorThatIsMissing) {
    write_index(
        R"({"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors","c":"m-1.safetensors"}})");
    EXPECT_EQ(outcome(), "corrupt");
}

TEST_F(CheckpointFolder, RejectsAFileThatIsMissing) {
    fs::remove(folder_ / "m-2.safetensors");
    EXPECT_EQ(outcome(), "not_found");
}

TEST_F(CheckpointFolder, NeedsAnIndexForMoreThanOneFile) {
    fs::remove(folder_ / kShardIndexName);
    EXPECT_EQ(outcome(), "invalid");
    fs::remove(folder_ / "m-2.safetensors");
    EXPECT_EQ(outcome(), "ok") << "one file needs no index";
}

TEST(CheckpointFile, IsReadInPlace) {
    const TempFolder folder;
    Rng rng(1);
    const std::vector<Tensor> model = small_model(rng);
    write_bytes(folder / "m.safetensors", safetensors_file(model));
    const Checkpoint checkpoint = value_of(Checkpoint::open(folder / "m.safetensors"));
    EXPECT_FALSE(checkpoint.is_folder());
    for (std::size_t i = 0; i < model.size(); ++i) {
        const auto bytes = checkpoint.bytes(i);
        EXPECT_TRUE(std::ranges::equal(bytes, model[i].bytes)) << model[i].info.name;
    }
    EXPECT_EQ(checkpoint.header_bytes(0).size(), checkpoint.files()[0].data_offset);
}

TEST(CheckpointFile, ThatIsNotThereIsNotFound) {
    EXPECT_EQ(outcome_of(Checkpoint::open("/nowhere/m.safetensors")), "not_found");
}

TEST(CheckpointFile, ThatIsEmptyIsCorrupt) {
    const TempFolder folder;
    write_bytes(folder / "m.safetensors", {});
    EXPECT_EQ(outcome_of(Checkpoint::open(folder / "m.safetensors")), "corrupt");
}

}  // namespace
}  // namespace wisp::testing
