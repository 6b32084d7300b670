#include <gtest/gtest.h>

#include <vector>

#include "kernel/kernels.hpp"

namespace wisp {
namespace {

constexpr std::size_t kPatterns = 65536;

std::vector<std::uint32_t> differing(const Kernels& table, const std::vector<std::uint16_t>& x,
                                     const std::vector<std::uint16_t>& y) {
    std::vector<std::uint32_t> positions(x.size());
    positions.resize(table.scan(reinterpret_cast<const std::byte*>(x.data()),
                                reinterpret_cast<const std::byte*>(y.data()), x.size(), 2,
                                positions.data(), {}));
    return positions;
}

std::vector<std::uint16_t> all_patterns() {
    std::vector<std::uint16_t> patterns(kPatterns);
    for (std::size_t i = 0; i < kPatterns; ++i) patterns[i] = static_cast<std::uint16_t>(i);
    return patterns;
}

TEST(Bf16Patterns, EachEqualsItselfAndNothingElse) {
    const auto old_bits = all_patterns();
    for (const Kernels& table : all_kernels()) {
        for (const std::uint32_t turn : {0U, 1U, 0x80U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
            auto new_bits = old_bits;
            for (auto& bits : new_bits) bits = static_cast<std::uint16_t>(bits + turn);
            EXPECT_EQ(differing(table, old_bits, new_bits).size(), turn == 0 ? 0 : kPatterns)
                << table.name << " turned by " << turn;
        }
    }
}

TEST(Bf16Patterns, EachDiffersFromEverySpecialButItself) {
    const auto patterns = all_patterns();
    for (const Kernels& table : all_kernels()) {
        for (const unsigned special : {0x0000U, 0x8000U, 0x7F80U, 0xFF80U, 0x7FC0U, 0xFFC1U,
                                       0x7F81U, 0x0001U, 0x8001U, 0x3F80U, 0xBF80U, 0x7F7FU}) {
            const std::vector<std::uint16_t> constant(kPatterns,
                                                      static_cast<std::uint16_t>(special));
            for (const bool as_new : {false, true}) {
                const auto found = as_new ? differing(table, patterns, constant)
                                          : differing(table, constant, patterns);
                ASSERT_EQ(found.size(), kPatterns - 1) << table.name;
                for (std::size_t i = 0; i < found.size(); ++i) {
                    ASSERT_EQ(found[i], i < special ? i : i + 1) << table.name;
                }
            }
        }
    }
}

TEST(Bf16Patterns, EveryExponentIsTaken) {
    const auto patterns = all_patterns();
    const ExponentField field = exponent_field(traits_of(Dtype::kBf16));
    for (const Kernels& table : all_kernels()) {
        std::vector<std::uint8_t> exponents(kPatterns);
        table.take_exponents(reinterpret_cast<const std::byte*>(patterns.data()), kPatterns, 2,
                             field, exponents.data());
        for (std::size_t i = 0; i < kPatterns; ++i) {
            ASSERT_EQ(exponents[i], i >> 7 & 0xFF) << table.name << " of pattern " << i;
        }
    }
}

}  // namespace
}  // namespace wisp
