// Every kernel table equals the reference, and the reference equals the page.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "kernel/kernels.hpp"
#include "random_blocks.hpp"

namespace wisp::testing {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::uint32_t kUntouched = 0xDEADBEEF;
constexpr TensorSeed kSeed{0x0123456789ABCDEF, 0xFEDCBA9876543210};

std::vector<std::size_t> lengths_to_try() {
    std::vector<std::size_t> lengths;
    for (std::size_t n = 0; n <= 2 * 64 + 1; ++n) lengths.push_back(n);
    for (const std::size_t n : {255U, 256U, 257U, 1000U, 4095U, 4097U}) lengths.push_back(n);
    return lengths;
}

Dtype float_of(unsigned element_bytes) {
    switch (element_bytes) {
        case 1: return Dtype::kF8E4M3;
        case 2: return Dtype::kBf16;
        case 4: return Dtype::kF32;
        default: return Dtype::kF64;
    }
}

/// A copy that starts `shift` bytes past an aligned address and ends where its memory ends.
class Misaligned {
  public:
    Misaligned(const Bytes& bytes, std::size_t shift) : memory_(shift + bytes.size()) {
        std::ranges::copy(bytes, memory_.begin() + static_cast<std::ptrdiff_t>(shift));
        at_ = memory_.data() + shift;
    }
    const std::byte* get() const { return at_; }

  private:
    Bytes memory_;
    const std::byte* at_;
};

std::byte* as_writable(std::vector<std::uint16_t>& elements) {
    return std::as_writable_bytes(std::span(elements)).data();
}

struct Scanned {
    std::vector<std::uint32_t> positions;
    StateDigest digest;
    friend bool operator==(const Scanned&, const Scanned&) = default;
};

Scanned run_scan(const Kernels& table, const std::byte* old_bits, const std::byte* new_bits,
                 std::size_t count, unsigned width, bool mix) {
    Scanned scanned;
    scanned.positions.assign(count + kGuard, kUntouched);
    scanned.digest = {11, 22};
    const ScanDigest digest{mix ? &kSeed : nullptr, 5, &scanned.digest};
    const std::size_t found =
        table.scan(old_bits, new_bits, count, width, scanned.positions.data(), digest);
    // Slots behind the last position may be scratch; those behind the room may not be written.
    for (std::size_t i = count; i < scanned.positions.size(); ++i) {
        EXPECT_EQ(scanned.positions[i], kUntouched) << table.name << " wrote past its room";
    }
    scanned.positions.resize(found);
    return scanned;
}

/// The changes of a weighted scan, copied out.
struct WeightedChanges {
    std::vector<WeightedChange> changes;
    StateDigest digest;
    friend bool operator==(const WeightedChanges&, const WeightedChanges&) = default;

    static void take(void* taker, std::span<const WeightedChange> changes) {
        auto& self = *static_cast<WeightedChanges*>(taker);
        self.changes.insert(self.changes.end(), changes.begin(), changes.end());
    }
};

WeightedChanges run_weighted(const Kernels& table, const std::byte* old_bits,
                             const std::byte* new_bits, std::size_t count,
                             const DtypeTraits& traits, bool mix, WeightedScan scan) {
    WeightedChanges found;
    found.digest = {33, 44};
    scan.field = exponent_field(traits);
    scan.digest = {mix ? &kSeed : nullptr, 9, &found.digest};
    scan.take = WeightedChanges::take;
    scan.taker = &found;
    table.scan_weighted(old_bits, new_bits, count, traits.element_bytes, scan);
    return found;
}

WeightedScan random_weights(const DtypeTraits& traits, Rng& rng) {
    WeightedScan scan{};
    const std::uint32_t largest = exponent_field(traits).largest();
    scan.window.top = static_cast<std::uint8_t>(rng() % (std::min(15U, largest) + 1));
    scan.window.low = static_cast<std::uint8_t>(rng() % (largest - scan.window.top + 1));
    for (std::size_t i = 0; i <= scan.window.top; ++i) {
        scan.weights.set(i, static_cast<std::uint32_t>(rng() % (kMaxWeight + 1)));
    }
    return scan;
}

class KernelEquality : public ::testing::TestWithParam<std::tuple<std::size_t, unsigned>> {
  protected:
    const Kernels& table() const { return all_kernels()[std::get<0>(GetParam())]; }
    unsigned width() const { return std::get<1>(GetParam()); }
    const DtypeTraits& traits() const { return traits_of(float_of(width())); }
};

TEST_P(KernelEquality, ScanFindsWhatTheReferenceFinds) {
    Rng rng(width());
    for (const std::size_t count : lengths_to_try()) {
        for (const Content content : kAllContents) {
            const Bytes old_block = random_block(traits(), content, count, rng);
            const auto shift = static_cast<std::size_t>(rng() % 8);
            const Misaligned old_bits(old_block, shift);
            for (const double share : {-1.0, 0.0, 0.1, 1.0}) {
                const Bytes new_block =
                    share < 0 ? old_block
                              : changed_copy(old_block, traits(), share, Change::kSpecials, rng);
                const Misaligned new_bits(new_block, (shift + count) % 8);
                const WeightedScan weights = random_weights(traits(), rng);
                for (const bool mix : {false, true}) {
                    ASSERT_EQ(
                        run_scan(table(), old_bits.get(), new_bits.get(), count, width(), mix),
                        run_scan(kReferenceKernels, old_bits.get(), new_bits.get(), count, width(),
                                 mix))
                        << count << " elements, mix " << mix << ", content " << int(content);
                    ASSERT_TRUE(run_weighted(table(), old_bits.get(), new_bits.get(), count,
                                             traits(), mix, weights) ==
                                run_weighted(kReferenceKernels, old_bits.get(), new_bits.get(),
                                             count, traits(), mix, weights))
                        << count << " elements, mix " << mix << ", content " << int(content);
                }
            }
        }
    }
}

TEST_P(KernelEquality, WeightedScanFindsTheChangesOfThePlainOne) {
    Rng rng(width() + 50);
    for (const std::size_t count : lengths_to_try()) {
        const Bytes old_block = random_block(traits(), Content::kWeights, count, rng);
        const Bytes new_block = changed_copy(old_block, traits(), 0.2, Change::kUlp, rng);
        const WeightedScan weights = random_weights(traits(), rng);
        const WeightedChanges found = run_weighted(table(), old_block.data(), new_block.data(),
                                                   count, traits(), true, weights);
        std::vector<std::uint32_t> positions;
        std::uint64_t before = 0;
        std::size_t next = 0;
        for (const WeightedChange& change : found.changes) {
            positions.push_back(change.position);
            for (; next < change.position; ++next) {
                const std::uint64_t bits = element_of(old_block, traits(), next);
                const std::uint8_t exponent = exponent_field(traits()).of(bits);
                before += weights.weights[weights.window.class_of(exponent)];
            }
            ASSERT_EQ(change.start, before);
            ASSERT_EQ(change.exponent,
                      exponent_field(traits()).of(element_of(old_block, traits(), next)));
        }
        ASSERT_EQ(
            positions,
            run_scan(table(), old_block.data(), new_block.data(), count, width(), false).positions);
    }
}

TEST_P(KernelEquality, ScanOfAllDifferentElementsListsThemAll) {
    for (const std::size_t count : lengths_to_try()) {
        const Bytes old_block(count * width(), std::byte{0x55});
        const Bytes new_block(count * width(), std::byte{0xAA});
        for (const bool mix : {false, true}) {
            const Scanned got =
                run_scan(table(), old_block.data(), new_block.data(), count, width(), mix);
            ASSERT_EQ(got.positions.size(), count);
            for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(got.positions[i], i);
        }
    }
}

TEST_P(KernelEquality, ScanFindsASingleChangedBitAnywhere) {
    constexpr std::size_t kCount = 131;
    const Bytes old_block(kCount * width(), std::byte{0x3F});
    for (std::size_t bit = 0; bit < old_block.size() * 8; ++bit) {
        Bytes new_block = old_block;
        new_block[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        const Scanned got =
            run_scan(table(), old_block.data(), new_block.data(), kCount, width(), false);
        ASSERT_EQ(got.positions,
                  std::vector<std::uint32_t>{static_cast<std::uint32_t>(bit / 8 / width())});
    }
}

TEST_P(KernelEquality, MixesBytesAsTheReferenceDoes) {
    Rng rng(width() + 100);
    const TensorSeed seed{rng(), rng()};
    for (const std::size_t count : lengths_to_try()) {
        for (std::size_t shift = 0; shift < 8; ++shift) {
            // Ends anywhere inside a word, not only on whole elements.
            const Bytes bytes = random_block(traits_of(Dtype::kU8), Content::kRandom,
                                             count * width() + (width() > 1 ? shift : 0), rng);
            const Misaligned at(bytes, shift);
            const std::uint64_t first_word = rng();
            ASSERT_EQ(table().mix_bytes(at.get(), bytes.size(), seed, first_word),
                      kReferenceKernels.mix_bytes(at.get(), bytes.size(), seed, first_word))
                << bytes.size() << " bytes at " << shift;
        }
    }
}

TEST_P(KernelEquality, TakesExponentsAsTheReferenceDoes) {
    Rng rng(width() + 200);
    for (int code = 0; code < kDtypeCount; ++code) {
        const DtypeTraits& dtype = traits_of(static_cast<Dtype>(code));
        if (dtype.element_bytes != width()) continue;
        const ExponentField field = exponent_field(dtype);
        for (const std::size_t count : lengths_to_try()) {
            for (const Content content : kAllContents) {
                const Bytes block = random_block(dtype, content, count, rng);
                const Misaligned at(block, static_cast<std::size_t>(rng() % 8));
                std::vector<std::uint8_t> expected(count + kGuard, 0xA5);
                std::vector<std::uint8_t> got = expected;
                kReferenceKernels.take_exponents(at.get(), count, width(), field, expected.data());
                table().take_exponents(at.get(), count, width(), field, got.data());
                ASSERT_EQ(got, expected) << dtype.name << ", " << count << " elements";
            }
        }
    }
}

TEST_P(KernelEquality, WeighsAsTheReferenceDoes) {
    Rng rng(width() + 300);
    for (const std::size_t groups : {0U, 1U, 2U, 3U, 5U, 64U}) {
        for (int round = 0; round < 50; ++round) {
            const std::size_t count = groups * 64;
            std::vector<std::uint8_t> exponents(count);
            for (auto& exponent : exponents) exponent = static_cast<std::uint8_t>(rng());
            ClassWindow window;
            window.top = static_cast<std::uint8_t>(rng() % kMaxClasses);
            window.low = static_cast<std::uint8_t>(rng() % (256U - window.top));
            WeightTable weights;
            for (std::size_t i = 0; i <= window.top; ++i) {
                weights.set(i, round == 0 ? kMaxWeight
                                          : static_cast<std::uint32_t>(rng() % (kMaxWeight + 1)));
            }
            std::vector<std::uint32_t> sums(count / 8 + kGuard, kUntouched);
            std::vector<std::uint32_t> totals(groups + kGuard, kUntouched);
            auto expected_sums = sums;
            auto expected_totals = totals;
            table().weigh(exponents.data(), count, window, weights, sums.data(), totals.data());
            kReferenceKernels.weigh(exponents.data(), count, window, weights, expected_sums.data(),
                                    expected_totals.data());
            ASSERT_EQ(sums, expected_sums);
            ASSERT_EQ(totals, expected_totals);
        }
    }
}

TEST_P(KernelEquality, MixesTouchedWordsAsTheReferenceDoes) {
    Rng rng(width() + 900);
    for (const std::size_t count : lengths_to_try()) {
        std::vector<std::uint32_t> indices(count);
        std::vector<std::uint64_t> before(count);
        std::vector<std::uint64_t> after(count);
        for (std::size_t i = 0; i < count; ++i) {
            indices[i] = i % 5 == 0 ? ~0U - static_cast<std::uint32_t>(i)
                                    : static_cast<std::uint32_t>(rng());
            before[i] = i % 7 == 0 ? 0 : rng();
            after[i] = i % 11 == 0 ? ~std::uint64_t{0} : rng();
        }
        const auto mix = [&](const Kernels& kernels) {
            return kernels.mix_touched(indices.data(), before.data(), after.data(), count, kSeed,
                                       std::uint64_t{1} << 40);
        };
        const TouchedSums expected = mix(kReferenceKernels);
        const TouchedSums got = mix(table());
        ASSERT_EQ(got.before, expected.before);
        ASSERT_EQ(got.after, expected.after);
    }
}

TEST_P(KernelEquality, ComparesAndListsAsTheReferenceDoes) {
    Rng rng(width() + 500);
    for (const std::size_t count : lengths_to_try()) {
        for (const double share : {-1.0, 0.0, 0.1, 0.7, 1.0}) {
            const Bytes old_block = random_block(traits(), Content::kWeights, count, rng);
            const Bytes new_block =
                share < 0 ? old_block : changed_copy(old_block, traits(), share, Change::kUlp, rng);
            const Misaligned old_bits(old_block, rng() % 8);
            const Misaligned new_bits(new_block, rng() % 8);
            const auto compare = [&](const Kernels& kernels) {
                return kernels.compare(old_bits.get(), new_bits.get(), count, width(), kSeed, 77);
            };
            const Comparison expected = compare(kReferenceKernels);
            const Comparison got = compare(table());
            ASSERT_EQ(got.changed, expected.changed);
            ASSERT_EQ(got.touched.before, expected.touched.before);
            ASSERT_EQ(got.touched.after, expected.touched.after);
            ASSERT_EQ(got.old_state, expected.old_state);
            ASSERT_EQ(got.old_state, table().mix_bytes(old_bits.get(), count * width(), kSeed, 77));
            const BlockChanges changes = changes_between(old_block, new_block, traits());
            ASSERT_EQ(got.changed, changes.count());
            const TouchedSums touched = touched_sums(old_block, changes, kSeed, 77);
            ASSERT_EQ(got.touched.before, touched.before);
            ASSERT_EQ(got.touched.after, touched.after);

            BlockChanges listed;
            listed.element_bytes = width();
            listed.positions.resize(count);
            listed.old_bits.resize(count * width());
            listed.new_bits.resize(count * width());
            const std::size_t found = table().list_changes(
                old_bits.get(), new_bits.get(), count, width(), 1000,
                {listed.positions.data(), listed.old_bits.data(), listed.new_bits.data()});
            listed.positions.resize(found);
            listed.old_bits.resize(found * width());
            listed.new_bits.resize(found * width());
            for (std::uint32_t& position : listed.positions) position -= 1000;
            ASSERT_EQ(listed, changes);
        }
    }
}

TEST_P(KernelEquality, TakesAndFollowsStepsAsTheReferenceDoes) {
    Rng rng(width() + 600);
    for (const std::size_t count : lengths_to_try()) {
        for (const Content content : kAllContents) {
            const bool floats = rng() % 2 == 0;
            const Misaligned old_bits(random_block(traits(), content, count, rng), rng() % 8);
            const Bytes new_block = random_block(traits(), Content::kRandom, count, rng);
            Bytes steps(count * width());
            Bytes expected_steps = steps;
            std::vector<std::uint8_t> capped(count);
            std::vector<std::uint8_t> expected = capped;
            table().take_steps(old_bits.get(), new_block.data(), count, width(), floats,
                               steps.data(), capped.data());
            kReferenceKernels.take_steps(old_bits.get(), new_block.data(), count, width(), floats,
                                         expected_steps.data(), expected.data());
            ASSERT_EQ(steps, expected_steps);
            ASSERT_EQ(capped, expected);
            Bytes back(count * width());
            table().follow_steps(old_bits.get(), steps.data(), count, width(), floats, back.data());
            ASSERT_EQ(back, new_block);
        }
    }
}

/// Two classes: one of three tokens, one of a single token.
struct TokenTables {
    std::vector<std::uint32_t> slices = std::vector<std::uint32_t>(512);
    std::vector<std::uint32_t> slots;

    TokenTables() {
        add(0, 0, 0, 4094);
        add(0, 7, 4094, 1);
        add(0, 255, 4095, 1);
        add(1, 9, 0, 4096);
    }
    void add(std::uint32_t kind, std::uint32_t token, std::uint32_t start, std::uint32_t size) {
        slices[kind << 8 | token] = start | size << kTokenBits;
        for (std::uint32_t i = 0; i < size; ++i) slots.push_back(token | i << 8 | (size - 1) << 20);
    }
};

TEST_P(KernelEquality, PutsAndTakesTokensAsTheReferenceDoes) {
    Rng rng(width() + 700);
    const TokenTables tables;
    for (const std::size_t count : {0U, 32U, 64U, 3200U, 32000U}) {
        std::vector<std::uint8_t> classes(count);
        std::vector<std::uint8_t> tokens(count);
        for (std::size_t i = 0; i < count; ++i) {
            classes[i] = static_cast<std::uint8_t>(rng() % 2);
            tokens[i] = classes[i] == 1 ? 9 : std::array<std::uint8_t, 3>{0, 7, 255}[rng() % 3];
        }
        const auto put = [&](const Kernels& kernels, TokenSink& sink) {
            std::vector<std::uint16_t> words(count + kTokenStates);
            sink = {{}, words.data(), tables.slices.data()};
            // The largest states there are come first.
            for (std::size_t i = 0; i < kTokenStates; ++i) {
                sink.states[i] = ~0U - static_cast<std::uint32_t>(i);
            }
            kernels.put_tokens(sink, classes.data(), count, tokens.data());
            words.resize(static_cast<std::size_t>(sink.next - words.data()));
            return words;
        };
        TokenSink sink, expected;
        std::vector<std::uint16_t> words = put(table(), sink);
        ASSERT_EQ(words, put(kReferenceKernels, expected));
        ASSERT_EQ(sink.states, expected.states);
        std::ranges::reverse(words);
        words.resize(words.size() + count);  // there must be one for every token
        TokenSource source = {sink.states, std::as_bytes(std::span(words)).data(),
                              tables.slots.data()};
        std::vector<std::uint8_t> back(count);
        table().take_tokens(source, classes.data(), count, back.data());
        ASSERT_EQ(back, tokens);
        for (std::size_t i = 0; i < kTokenStates; ++i) {
            ASSERT_EQ(source.states[i], ~0U - static_cast<std::uint32_t>(i));
        }
    }
}

TEST_P(KernelEquality, PutsTokensOfEveryFrequencyFromEveryState) {
    if (width() != 1) return;  // tokens have no width
    Rng rng(800);
    std::vector<std::uint32_t> slices(512);
    for (std::uint32_t frequency = 1; frequency < 1U << kTokenBits; ++frequency) {
        slices[5] = 0 | frequency << kTokenBits;
        slices[256 + 6] = frequency | ((1U << kTokenBits) - frequency) << kTokenBits;
        std::array<std::uint8_t, kTokenStates> classes{};
        std::array<std::uint8_t, kTokenStates> tokens{};
        TokenSink expected = {{}, nullptr, slices.data()};
        for (std::size_t i = 0; i < kTokenStates; ++i) {
            classes[i] = static_cast<std::uint8_t>(i % 2);
            tokens[i] = static_cast<std::uint8_t>(5 + i % 2);
            // Around whole quotients, where a rounded one would be off by one, and anywhere.
            const std::uint64_t size = slices[classes[i] * 256U + tokens[i]] >> kTokenBits;
            const std::uint64_t whole = size * (1 + rng() % ((1U << 20) - 1));
            const std::uint64_t state = i < 24 ? whole + rng() % 3 - 1 : rng();
            expected.states[i] = static_cast<std::uint32_t>(
                std::clamp<std::uint64_t>(state, kTokenStateLow, 0xFFFFFFFF));
        }
        TokenSink sink = expected;
        std::array<std::uint16_t, 2 * kTokenStates> words{};
        std::array<std::uint16_t, 2 * kTokenStates> expected_words{};
        sink.next = words.data();
        expected.next = expected_words.data();
        table().put_tokens(sink, classes.data(), kTokenStates, tokens.data());
        kReferenceKernels.put_tokens(expected, classes.data(), kTokenStates, tokens.data());
        ASSERT_EQ(sink.states, expected.states) << "frequency " << frequency;
        const auto written = static_cast<std::size_t>(sink.next - words.data());
        ASSERT_EQ(written, static_cast<std::size_t>(expected.next - expected_words.data()));
        ASSERT_TRUE(std::equal(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(written),
                               expected_words.begin()));
    }
}

TEST_P(KernelEquality, RoundsToBf16AsTheReferenceDoes) {
    if (width() != 4) return;
    Rng rng(400);
    const DtypeTraits& dtype = traits_of(Dtype::kF32);
    for (const std::size_t count : lengths_to_try()) {
        for (const Content content : kAllContents) {
            const Misaligned at(random_block(dtype, content, count, rng), rng() % 8);
            std::vector<std::uint16_t> expected(count + kGuard, 0xA5A5);
            std::vector<std::uint16_t> got = expected;
            kReferenceKernels.round_to_bf16(at.get(), count, as_writable(expected));
            table().round_to_bf16(at.get(), count, as_writable(got));
            ASSERT_EQ(got, expected) << count << " elements";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(EveryTable, KernelEquality,
                         ::testing::Combine(::testing::Range<std::size_t>(0, all_kernels().size()),
                                            ::testing::Values(1U, 2U, 4U, 8U)),
                         [](const auto& named) {
                             return std::string(all_kernels()[std::get<0>(named.param)].name) +
                                    "_width" + std::to_string(std::get<1>(named.param));
                         });

TEST(ReferenceKernel, MixesWordsByTheFormula) {
    const TensorSeed seed{3, 5};
    const Bytes word = {std::byte{1}, std::byte{2}, std::byte{3}};
    const std::uint64_t value = 0x030201;
    const auto fold = [&](std::uint64_t key) {
        const std::uint64_t x = value ^ key;
        return (x % (1ULL << 32)) * (x >> 32) + value;
    };
    const StateDigest got = kReferenceKernels.mix_bytes(word.data(), word.size(), seed, 7);
    EXPECT_EQ(got.a, fold(3 + 7 * 0x9E3779B97F4A7C15));
    EXPECT_EQ(got.b, fold(5 + 7 * 0xC2B2AE3D27D4EB4F));
}

TEST(ReferenceKernel, HoldsExponentsOfF64ToTheBinadesAroundOne) {
    const std::vector<double> values = {0.0, 0x1p-127, 0x1p-126, 1.0, 0x1p127, 0x1p128, 0x1p1000};
    std::vector<std::uint8_t> exponents(values.size());
    kReferenceKernels.take_exponents(reinterpret_cast<const std::byte*>(values.data()),
                                     values.size(), 8, exponent_field(traits_of(Dtype::kF64)),
                                     exponents.data());
    EXPECT_EQ(exponents, (std::vector<std::uint8_t>{0, 0, 1, 127, 254, 255, 255}));
}

TEST(ReferenceKernel, RoundsToTheNearestBf16AndTiesToEven) {
    const std::vector<std::pair<std::uint32_t, std::uint16_t>> cases = {
        {0x3F80'0000, 0x3F80}, {0x3F80'7FFF, 0x3F80}, {0x3F80'8000, 0x3F80}, {0x3F80'8001, 0x3F81},
        {0x3F81'8000, 0x3F82}, {0x8000'0000, 0x8000}, {0x0000'8001, 0x0001}, {0x7F7F'FFFF, 0x7F80},
        {0xFF80'0000, 0xFF80}, {0x7F80'0001, 0xFFFF}, {0xFFFF'FFFF, 0xFFFF}};
    for (const auto& [from, to] : cases) {
        std::uint16_t got = 0;
        kReferenceKernels.round_to_bf16(std::as_bytes(std::span(&from, 1)).data(), 1,
                                        std::as_writable_bytes(std::span(&got, 1)).data());
        EXPECT_EQ(got, to) << std::hex << from;
    }
}

}  // namespace
}  // namespace wisp::testing
