#include <gtest/gtest.h>

#include <random>

#include "codec/hazard.hpp"
#include "codec/sparse_header.hpp"
#include "expect_result.hpp"

namespace wisp::testing {
namespace {

const ExponentField kBf16Field = exponent_field(traits_of(Dtype::kBf16));

SparseHeader header_of(std::vector<int> codes, std::uint8_t low = 100) {
    SparseHeader header;
    header.change_count = 3;
    header.hazard_shift = 12;
    header.window.low = low;
    header.window.top = static_cast<std::uint8_t>(codes.size() - 1);
    for (std::size_t i = 0; i < codes.size(); ++i) {
        header.weight_codes[i] = static_cast<std::uint8_t>(codes[i]);
    }
    return header;
}

Bytes written(const SparseHeader& header) {
    Bytes out;
    write_sparse_header(header, out);
    return out;
}

Result<SparseHeader> parse(const Bytes& bytes, const ExponentField& field = kBf16Field,
                           std::uint64_t elements = 1000) {
    ByteReader in(bytes);
    return parse_sparse_header(in, field, elements);
}

void expect_refused(const SparseHeader& header, const char* why,
                    const ExponentField& field = kBf16Field) {
    const auto result = parse(written(header), field);
    EXPECT_EQ(outcome_of(result), "corrupt") << why;
    EXPECT_NE(text_of(result).find(why), std::string::npos) << text_of(result);
}

TEST(SparseHeader, ReadsBackWhatWasWritten) {
    std::mt19937_64 rng(1);
    for (int i = 0; i < 5000; ++i) {
        std::vector<int> codes(1 + rng() % kMaxClasses);
        int code = static_cast<int>(rng() % (kMaxWeightCode + 1));
        for (int& each : codes) {
            each = code;
            // Mostly one octave down, as weights go; at times anything.
            code = rng() % 4 == 0 ? static_cast<int>(rng() % (kMaxWeightCode + 1))
                                  : std::clamp(code - 8 + static_cast<int>(rng() % 9) - 4, 0,
                                               static_cast<int>(kMaxWeightCode));
        }
        SparseHeader header = header_of(codes, static_cast<std::uint8_t>(rng() % 240));
        header.change_count = 1 + rng() % 1000;
        header.hazard_shift = kMinHazardShift + static_cast<unsigned>(rng() % 22);
        const Bytes bytes = written(header);
        ByteReader in(bytes);
        const SparseHeader back = value_of(parse_sparse_header(in, kBf16Field, 1000));
        ASSERT_TRUE(in.at_end());
        ASSERT_EQ(back.change_count, header.change_count);
        ASSERT_EQ(back.hazard_shift, header.hazard_shift);
        ASSERT_EQ(back.window.low, header.window.low);
        ASSERT_EQ(back.window.top, header.window.top);
        ASSERT_EQ(back.weight_codes, header.weight_codes);
    }
}

TEST(SparseHeader, SpendsHalfAByteOnAClassAsPredicted) {
    EXPECT_EQ(written(header_of({80, 72, 64, 56, 48})).size(), 5U + 2U);
}

TEST(SparseHeader, RejectsMoreChangesThanElementsOrNone) {
    SparseHeader header = header_of({10});
    header.change_count = 0;
    expect_refused(header, "more changes than elements, or none");
    header.change_count = 1001;
    expect_refused(header, "more changes than elements, or none");
    header.change_count = 1000;
    EXPECT_EQ(outcome_of(parse(written(header))), "ok");
}

TEST(SparseHeader, RejectsMoreThan16Classes) {
    SparseHeader header = header_of({10});
    header.window.top = 15;
    EXPECT_EQ(outcome_of(parse(written(header))), "ok");
    Bytes bytes = written(header);
    bytes[1] = std::byte{16};
    EXPECT_NE(text_of(parse(bytes)).find("more than 16 classes"), std::string::npos);
}

TEST(SparseHeader, RejectsClassesBeyondTheExponentField) {
    expect_refused(header_of({10, 10}, 255), "beyond the exponent field");
    EXPECT_EQ(outcome_of(parse(written(header_of({10, 10}, 254)))), "ok");
    const ExponentField none = exponent_field(traits_of(Dtype::kI32));
    expect_refused(header_of({10}, 1), "beyond the exponent field", none);
    expect_refused(header_of({10, 10}, 0), "beyond the exponent field", none);
    EXPECT_EQ(outcome_of(parse(written(header_of({10}, 0)), none)), "ok");
}

TEST(SparseHeader, RejectsAHazardShiftOutOfRange) {
    for (const unsigned shift : {0U, kMinHazardShift - 1, kMaxHazardShift + 1, 255U}) {
        SparseHeader header = header_of({10});
        header.hazard_shift = shift;
        expect_refused(header, "hazard shift");
    }
}

TEST(SparseHeader, RejectsAWeightCodeOutOfRange) {
    expect_refused(header_of({104}), "weight code");
    expect_refused(header_of({10, 104}), "weight code");
    expect_refused(header_of({10, 255}), "weight code");
    Bytes below = written(header_of({8, 0}));
    below.back() = std::byte{0};  // the nibble 0 says seven below what was predicted, which is 0
    EXPECT_NE(text_of(parse(below)).find("weight code"), std::string::npos);
}

TEST(SparseHeader, RejectsPaddingThatIsNotZero) {
    Bytes bytes = written(header_of({80, 72}));
    bytes.back() |= std::byte{0x10};
    EXPECT_NE(text_of(parse(bytes)).find("padding"), std::string::npos);
}

TEST(SparseHeader, RejectsToEndInside) {
    const Bytes bytes = written(header_of({80, 10, 100, 3, 90}));
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        ByteReader in(std::span<const std::byte>(bytes).first(size));
        EXPECT_EQ(outcome_of(parse_sparse_header(in, kBf16Field, 1000)), "corrupt") << size;
    }
}

}  // namespace
}  // namespace wisp::testing
