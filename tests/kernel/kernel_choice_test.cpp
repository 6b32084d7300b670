#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernel/kernels.hpp"

namespace wisp {
namespace {

struct Answer {
    std::string text;
    int code = -1;
};

Answer ask_probe(const std::string& name) {
    const std::string command = "WISP_KERNEL='" + name + "' '" WISP_KERNEL_PROBE "'";
    FILE* pipe = ::popen(command.c_str(), "r");
    Answer answer;
    std::array<char, 512> line{};
    while (std::fgets(line.data(), line.size(), pipe) != nullptr) answer.text += line.data();
    answer.code = WEXITSTATUS(::pclose(pipe));
    if (answer.text.ends_with('\n')) answer.text.pop_back();
    return answer;
}

TEST(KernelChoice, TheForcedKernelIsTheOneThatRuns) {
    for (const Kernels& table : all_kernels()) {
        const Answer answer = ask_probe(std::string(table.name));
        EXPECT_EQ(answer.code, 0) << table.name;
        EXPECT_EQ(answer.text, table.name);
    }
}

TEST(KernelChoice, IgnoresTheCaseOfTheName) {
    EXPECT_EQ(ask_probe("Reference").text, "reference");
}

TEST(KernelChoice, TakesTheBestWhenNothingIsAskedFor) {
    const auto list = all_kernels();
    const Answer answer = ask_probe("");
    EXPECT_EQ(answer.code, 0);
    EXPECT_EQ(answer.text, list[list.size() > 1 ? 1 : 0].name);
}

TEST(KernelChoice, RefusesANameThatIsNoKernel) {
    const Answer answer = ask_probe("nonsense");
    EXPECT_EQ(answer.code, 1);
    EXPECT_NE(answer.text.find("nonsense"), std::string::npos);
    EXPECT_NE(answer.text.find("reference"), std::string::npos) << "names what may be chosen";
}

TEST(KernelChoice, ListsTheReferenceFirst) {
    ASSERT_FALSE(all_kernels().empty());
    EXPECT_EQ(all_kernels()[0].name, "reference");
}

}  // namespace
}  // namespace wisp
