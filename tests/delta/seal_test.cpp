#include <gtest/gtest.h>

#include "base/sha256.hpp"
#include "delta/verified_delta.hpp"
#include "repaired_seal.hpp"
#include "temp_checkpoints.hpp"
#include "wisp/delta.hpp"

namespace wisp::testing {
namespace {

class SealedDelta : public ::testing::TestWithParam<Codec> {
  protected:
    void SetUp() override {
        Rng rng(5);
        const std::vector<Tensor> model = {random_tensor("w", Dtype::kBf16, {300}, rng),
                                           random_tensor("x", Dtype::kF32, {9}, rng)};
        write_bytes(folder_ / "old", safetensors_file(model));
        write_bytes(folder_ / "new", safetensors_file(changed_model(model, 0.03, rng)));
        const Checkpoint old_state = value_of(Checkpoint::open(folder_ / "old"));
        const Checkpoint new_state = value_of(Checkpoint::open(folder_ / "new"));
        DiffOptions options;
        options.codec = GetParam();
        options.step = 12;
        report_ = value_of(diff(old_state, new_state, folder_ / "delta", options));
        file_ = read_bytes(folder_ / "delta");
    }
    TempFolder folder_;
    DiffReport report_;
    Bytes file_;
};

TEST_P(SealedDelta, IsVerifiedAndSaysWhatItIs) {
    const VerifiedDelta delta = value_of(verify_delta(file_, "d"));
    EXPECT_TRUE(delta.sealed());
    EXPECT_EQ(delta.facts().codec, GetParam());
    EXPECT_EQ(delta.facts().step, 12U);
    EXPECT_EQ(delta.facts().base, report_.base);
    EXPECT_EQ(delta.facts().result, report_.result);
    EXPECT_EQ(delta.facts().changed_elements, report_.changed_elements);
    EXPECT_EQ(delta.facts().total_elements, 309U);
    EXPECT_EQ(delta.tensors().size(), 2U);
    EXPECT_EQ(delta.file_bytes(), file_.size());
}

TEST_P(SealedDelta, IsRefusedWithAnyByteFlipped) {
    for (std::size_t i = 0; i < file_.size(); ++i) {
        for (const int bit : {0, 5, 7}) {
            Bytes damaged = file_;
            damaged[i] ^= static_cast<std::byte>(1U << bit);
            ASSERT_NE(outcome_of(verify_delta(damaged, "d")), "ok")
                << "byte " << i << " of " << file_.size() << ", bit " << bit;
        }
    }
}

TEST_P(SealedDelta, IsRefusedWhenCutAnywhereOrContinued) {
    for (std::size_t size = 0; size < file_.size(); ++size) {
        ASSERT_EQ(outcome_of(verify_delta(std::span(file_).first(size), "d")), "corrupt") << size;
    }
    file_.push_back({});
    EXPECT_EQ(outcome_of(verify_delta(file_, "d")), "corrupt");
}

INSTANTIATE_TEST_SUITE_P(Codecs, SealedDelta,
                         ::testing::Values(Codec::kCompact, Codec::kSwift, Codec::kPlain,
                                           Codec::kGap),
                         [](const auto& named) { return std::string(name_of(named.param)); });

TEST(VerifiedDelta, RefusesACheckpoint) {
    Rng rng(1);
    const auto result = verify_delta(safetensors_file(small_model(rng)), "m");
    EXPECT_EQ(outcome_of(result), "invalid");
    EXPECT_NE(text_of(result).find("checkpoint"), std::string::npos);
}

/// A sealed compact file of one unchanged model, whose metadata a test may spoil.
Bytes compact_with(Metadata changed) {
    Metadata metadata = {{std::string(kSealKey), std::string(kSealDigits, '0')},
                         {"format", "wisp_delta"},
                         {"version", "1"},
                         {"codec", "compact"},
                         {"step", "1"},
                         {std::string(kBaseKey), std::string(32, '1')},
                         {std::string(kResultKey), std::string(32, '1')},
                         {std::string(kTouchedKey), std::string(32, '0')},
                         {std::string(kSchemaKey), std::string(32, '2')},
                         {std::string(kDirectorySizeKey), "2"}};
    for (const auto& [key, value] : changed) {
        if (value == "absent") {
            metadata.erase(key);
        } else {
            metadata[key] = value;
        }
    }
    // The directory 14 00: blocks of 2^20 elements, no tensor.
    constexpr std::array<int, 10> kDirectory = {0x78, 0xda, 0x13, 0x61, 0x00,
                                                0x00, 0x00, 0x2a, 0x00, 0x15};
    Bytes data;
    for (const int byte : kDirectory) data.push_back(static_cast<std::byte>(byte));
    Bytes file =
        write_safetensors_header({{{"wisp.blocks", Dtype::kU8, {0}}, 0, 0},
                                  {{"wisp.directory", Dtype::kU8, {data.size()}}, 0, data.size()}},
                                 metadata, kSealKey);
    file.insert(file.end(), data.begin(), data.end());
    repair_seal(file);
    return file;
}

TEST(VerifiedDelta, NeedsAllItsMetadata) {
    ASSERT_EQ(text_of(verify_delta(compact_with({}), "d")), "");
    for (const std::string_view key :
         {kBaseKey, kResultKey, kTouchedKey, kSchemaKey, kDirectorySizeKey}) {
        EXPECT_EQ(outcome_of(verify_delta(compact_with({{std::string(key), "absent"}}), "d")),
                  "corrupt")
            << key;
    }
    EXPECT_EQ(outcome_of(verify_delta(compact_with({{std::string(kBaseKey), "xyz"}}), "d")),
              "corrupt");
    EXPECT_EQ(outcome_of(verify_delta(compact_with({{std::string(kDirectorySizeKey), "-1"}}), "d")),
              "corrupt");
}

TEST(VerifiedDelta, RefusesAnotherVersionOrCodecAsUnsupported) {
    EXPECT_EQ(outcome_of(verify_delta(compact_with({{"version", "2"}}), "d")), "unsupported");
    EXPECT_EQ(outcome_of(verify_delta(compact_with({{"codec", "tiny"}}), "d")), "unsupported");
}

TEST(VerifiedDelta, RefusesASealThatIsNotInFront) {
    Bytes file = compact_with({{"a_key_before", "x"}});
    EXPECT_EQ(outcome_of(verify_delta(file, "d")), "ok") << "the writer puts the seal first";
    const auto result = verify_delta(compact_with({{std::string(kSealKey), "absent"}}), "d");
    EXPECT_EQ(outcome_of(result), "corrupt");
}

TEST(SealText, StandsForItsOwnPlaceByZeros) {
    Bytes file = compact_with({});
    const std::size_t header = 8 + load_le<std::uint64_t>(file.data());
    const auto seal = [&] {
        return seal_text(std::span<const std::byte>(file).first(header), sha256({}));
    };
    const std::string before = seal();
    file[kSealOffset] = std::byte{'9'};
    EXPECT_EQ(seal(), before);
    file[kSealOffset - 1] = std::byte{'9'};
    EXPECT_NE(seal(), before);
}

TEST(SparsityText, IsWrittenAsPythonWritesFloats) {
    EXPECT_EQ(sparsity_text(0, 10), "1.0");
    EXPECT_EQ(sparsity_text(10, 10), "0.0");
    EXPECT_EQ(sparsity_text(1, 200), "0.995");
    EXPECT_EQ(sparsity_text(0, 0), "1.0");
}

}  // namespace
}  // namespace wisp::testing
