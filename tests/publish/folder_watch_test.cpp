// Which of the folders that a trainer writes are complete, in the order of their steps.
#include <gtest/gtest.h>

#include "manual_clock.hpp"
#include "temp_checkpoints.hpp"
#include "wisp/step_folders.hpp"

namespace wisp::testing {
namespace {

class Watched : public ::testing::Test {
  protected:
    Watched() { options_.clock = clock_; }

    FolderWatch watch(const std::string& ready) {
        options_.ready = ready;
        return {StepPattern::any_in(folder_.path()), options_};
    }
    void write(const std::string& folder, const std::string& file, std::string_view text = "x") {
        fs::create_directories(folder_ / folder);
        write_bytes(folder_ / folder / file, as_bytes(text));
    }
    static std::vector<std::uint64_t> steps(const std::vector<StepFolder>& folders) {
        std::vector<std::uint64_t> found;
        for (const StepFolder& folder : folders) found.push_back(folder.step);
        return found;
    }
    using Steps = std::vector<std::uint64_t>;

    TempFolder folder_;
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    FolderWatchOptions options_;
};

TEST_F(Watched, AMarkerCompletesAFolder) {
    FolderWatch watched = watch("STABLE");
    write("step_10", "model.safetensors");
    write("step_9", "model.safetensors");
    write("step_9", "STABLE", "");
    const FolderLook look = value_of(watched.look(std::nullopt));
    EXPECT_EQ(steps(look.ready), Steps{9});
    EXPECT_EQ(look.unfinished->step, 10U);
    write("step_10", "STABLE", "");
    EXPECT_EQ(steps(value_of(watched.look(9)).ready), Steps{10});
    EXPECT_EQ(steps(value_of(watched.look(std::nullopt)).ready), (Steps{9, 10}));
    EXPECT_TRUE(value_of(watched.look(10)).ready.empty());
}

TEST_F(Watched, WithoutAMarkerSilenceCompletesIt) {
    FolderWatch watched = watch("");
    write("weight_update_v3", "model.safetensors", "1");
    EXPECT_TRUE(value_of(watched.look(std::nullopt)).ready.empty());
    clock_->advance(Milliseconds(4'000));
    write("weight_update_v3", "model.safetensors", "12");
    EXPECT_TRUE(value_of(watched.look(std::nullopt)).ready.empty());
    clock_->advance(Milliseconds(4'000));
    EXPECT_TRUE(value_of(watched.look(std::nullopt)).ready.empty()) << "it changed in between";
    clock_->advance(Milliseconds(1'000));
    EXPECT_EQ(steps(value_of(watched.look(std::nullopt)).ready), Steps{3});
}

TEST_F(Watched, AFolderThatIsStillWrittenHoldsBackLaterOnes) {
    FolderWatch watched = watch("STABLE");
    write("step_1", "model.safetensors");
    write("step_2", "STABLE", "");
    EXPECT_TRUE(value_of(watched.look(std::nullopt)).ready.empty());
    clock_->advance(Milliseconds(5'000));
    const FolderLook look = value_of(watched.look(std::nullopt));
    EXPECT_EQ(steps(look.ready), Steps{2});
    EXPECT_EQ(steps(look.passed_over), Steps{1});
    EXPECT_TRUE(value_of(watched.look(std::nullopt)).passed_over.empty()) << "told once";
}

TEST_F(Watched, WhatWasGivenUpComesBackWhenItChanges) {
    FolderWatch watched = watch("STABLE");
    write("step_1", "STABLE", "");
    const FolderLook look = value_of(watched.look(std::nullopt));
    watched.give_up(look.ready.front());
    EXPECT_TRUE(value_of(watched.look(std::nullopt)).ready.empty());
    write("step_1", "model.safetensors");
    EXPECT_EQ(steps(value_of(watched.look(std::nullopt)).ready), Steps{1});
}

TEST_F(Watched, RefusesTwoFoldersOfOneStepAndAPlaceThatIsNotThere) {
    FolderWatch watched = watch("STABLE");
    write("step_5", "STABLE", "");
    write("checkpoint-5", "STABLE", "");
    EXPECT_EQ(outcome_of(watched.look(std::nullopt)), "invalid");
    FolderWatch one(value_of(StepPattern::parse((folder_ / "step_{step}").string())), options_);
    EXPECT_EQ(steps(value_of(one.look(std::nullopt)).ready), Steps{5});
    FolderWatch nowhere(StepPattern::any_in(folder_ / "nothing"), options_);
    EXPECT_EQ(outcome_of(nowhere.look(std::nullopt)), "not_found");
}

TEST_F(Watched, APatternMayLeadBelowTheFolderOfAStep) {
    options_.ready = "done";
    FolderWatch watched(
        value_of(StepPattern::parse((folder_ / "global_step_{step}/actor/hf").string())), options_);
    write("global_step_4/actor/hf", "model.safetensors");
    write("global_step_4", "done", "");
    const FolderLook look = value_of(watched.look(std::nullopt));
    ASSERT_EQ(steps(look.ready), Steps{4});
    EXPECT_EQ(look.ready.front().folder, folder_ / "global_step_4/actor/hf");
}

}  // namespace
}  // namespace wisp::testing
