#include <gtest/gtest.h>

#include "codec/hazard.hpp"
#include "codec/hazard_field.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

struct Naive {
    std::vector<std::uint64_t> starts;  // one more than elements
    std::vector<std::uint32_t> classes;
};

Naive walk(const Bytes& block, const DtypeTraits& traits, const SparseHeader& header) {
    const ExponentField field = exponent_field(traits);
    const WeightTable weights = header.weights();
    Naive naive;
    naive.starts.push_back(0);
    for (std::size_t i = 0; i < block.size() / traits.element_bytes; ++i) {
        const auto at = header.window.class_of(field.of(element_of(block, traits, i)));
        naive.classes.push_back(at);
        naive.starts.push_back(naive.starts.back() + weights[at]);
    }
    return naive;
}

SparseHeader random_header(const DtypeTraits& traits, bool zeros, Rng& rng) {
    SparseHeader header;
    const std::uint64_t largest = exponent_field(traits).largest();
    header.window.top =
        static_cast<std::uint8_t>(rng() % (std::min<std::uint64_t>(15, largest) + 1));
    header.window.low = static_cast<std::uint8_t>(std::min<std::uint64_t>(
        largest - header.window.top, largest / 2 > 8 ? largest / 2 - 8 : 0));
    header.hazard_shift = 10;
    for (std::size_t i = 0; i <= header.window.top; ++i) {
        header.weight_codes[i] =
            static_cast<std::uint8_t>(zeros && rng() % 2 == 0 ? 0 : rng() % (kMaxWeightCode + 1));
    }
    return header;
}

class HazardFieldOf : public ::testing::TestWithParam<Dtype> {
  protected:
    const DtypeTraits& traits() const { return traits_of(GetParam()); }

    /// Calls check(field, naive) for blocks around the chunk's border.
    template <class Check>
    void for_blocks(Check&& check) const {
        Rng rng(17);
        for (const std::size_t count : {1U, 7U, 8U, 63U, 64U, 65U, 511U, 4095U, 4096U, 4097U, 4160U,
                                        8191U, 8192U, 8193U, 12'000U}) {
            for (int round = 0; round < 4; ++round) {
                const Bytes block = random_block(
                    traits(), round == 0 ? Content::kRandom : Content::kWeights, count, rng);
                const SparseHeader header = random_header(traits(), round == 2, rng);
                HazardField hazards(block, traits().element_bytes, exponent_field(traits()),
                                    header);
                check(hazards, walk(block, traits(), header), rng);
            }
        }
    }
};

TEST_P(HazardFieldOf, PlacesEveryElementWhereTheSumSays) {
    for (const std::uint64_t stride : {1U, 3U, 100U, 5000U}) {
        for_blocks([&](HazardField& field, const Naive& naive, Rng& rng) {
            for (std::size_t i = rng() % stride; i < naive.classes.size();
                 i += 1 + rng() % stride) {
                const HazardField::Place place = field.at(i);
                ASSERT_EQ(place.position, i);
                ASSERT_EQ(place.start, naive.starts[i]);
                ASSERT_EQ(place.weight, naive.starts[i + 1] - naive.starts[i]);
                ASSERT_EQ(place.element_class, naive.classes[i]);
            }
        });
    }
}

TEST_P(HazardFieldOf, FindsTheElementThatHoldsAPoint) {
    for (const std::uint64_t parts : {5U, 1000U, 20'000U}) {
        for_blocks([&](HazardField& field, const Naive& naive, Rng& rng) {
            const std::uint64_t total = naive.starts.back();
            HazardField::Place place{};
            for (std::uint64_t point = 0; point < total; point += 1 + rng() % (total / parts + 1)) {
                ASSERT_TRUE(field.find(point, place));
                ASSERT_LT(place.position, naive.classes.size());
                ASSERT_EQ(place.start, naive.starts[place.position]);
                ASSERT_EQ(place.weight, naive.starts[place.position + 1] - place.start);
                ASSERT_EQ(place.element_class, naive.classes[place.position]);
                ASSERT_LE(place.start, point);
                ASSERT_LT(point, place.start + place.weight);
            }
            EXPECT_FALSE(field.find(total, place)) << "past the end there is nothing";
            EXPECT_FALSE(field.find(total + (1ULL << 40), place));
        });
    }
}

TEST_P(HazardFieldOf, FindsEveryElementByItsFirstAndLastUnit) {
    for_blocks([](HazardField& field, const Naive& naive, Rng&) {
        HazardField::Place place{};
        for (std::size_t i = 0; i < naive.classes.size(); ++i) {
            if (naive.starts[i] == naive.starts[i + 1]) continue;
            for (const std::uint64_t point : {naive.starts[i], naive.starts[i + 1] - 1}) {
                ASSERT_TRUE(field.find(point, place));
                ASSERT_EQ(place.position, i);
            }
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Dtypes, HazardFieldOf,
                         ::testing::Values(Dtype::kU8, Dtype::kF8E4M3, Dtype::kBf16, Dtype::kF16,
                                           Dtype::kF32, Dtype::kF64),
                         [](const auto& named) { return dtype_name(named.param); });

}  // namespace
}  // namespace wisp::testing
