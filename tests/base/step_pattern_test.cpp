#include <gtest/gtest.h>

#include "expect_result.hpp"
#include "wisp/step_folders.hpp"

namespace wisp::testing {
namespace {

TEST(StepPattern, NamesAFolderForEachStep) {
    const StepPattern plain = value_of(StepPattern::parse("/models/step_{step}"));
    EXPECT_EQ(plain.root(), "/models/");
    EXPECT_EQ(plain.name_of(12), "step_12");
    EXPECT_EQ(plain.folder_of(12), "/models/step_12");
    const StepPattern padded = value_of(StepPattern::parse("out/weight_v{step:06}.d/actor/hf"));
    EXPECT_EQ(padded.name_of(12), "weight_v000012.d");
    EXPECT_EQ(padded.name_of(12'345'678), "weight_v12345678.d");
    EXPECT_EQ(padded.below(), "actor/hf");
    EXPECT_EQ(value_of(StepPattern::parse("{step}")).root(), ".");
}

TEST(StepPattern, ReadsAStepBackFromAName) {
    const StepPattern plain = value_of(StepPattern::parse("m/step_{step}"));
    EXPECT_EQ(plain.step_of("step_12"), 12U);
    for (const char* const other : {"step_", "step_x", "step_012", "step_12.tmp", "12", "step_-1",
                                    "step_99999999999999999999"}) {
        EXPECT_FALSE(plain.step_of(other)) << other;
    }
    const StepPattern padded = value_of(StepPattern::parse("m/v{step:06}"));
    EXPECT_EQ(padded.step_of("v000012"), 12U);
    EXPECT_FALSE(padded.step_of("v12"));
}

TEST(StepPattern, WithoutOneTakesAnyNameThatEndsInANumber) {
    const StepPattern any = StepPattern::any_in("out");
    EXPECT_EQ(any.step_of("checkpoint-500"), 500U);
    EXPECT_EQ(any.step_of("weight_update_v3"), 3U);
    EXPECT_EQ(any.step_of("000012"), 12U);
    for (const char* const other : {"latest", "step_5.tmp", ".step_5", ""}) {
        EXPECT_FALSE(any.step_of(other)) << other;
    }
}

TEST(StepPattern, RefusesWhatCannotBeReadBack) {
    for (const char* const bad :
         {"models", "m/{step}/{step}", "m/{step", "m/{step:6}", "m/{step:0}", "m/{step:099}",
          "m/v2{step}", "m/{step}0", "m/.{step}"}) {
        EXPECT_EQ(outcome_of(StepPattern::parse(bad)), "invalid") << bad;
    }
}

}  // namespace
}  // namespace wisp::testing
