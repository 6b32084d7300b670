#include <gtest/gtest.h>

#include "base/deflate.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "expect_result.hpp"
#include "wisp/state.hpp"

namespace wisp::testing {
namespace {

TEST(StateDigestText, IsReadBack) {
    const StateDigest digest{0x0123456789ABCDEF, 0x00000000000000FF};
    EXPECT_EQ(to_text(digest), "0123456789abcdef00000000000000ff");
    EXPECT_EQ(parse_digest(to_text(digest)), digest);
}

TEST(StateDigestText, RefusesWhatIsNot32LowerCaseDigits) {
    for (const char* text :
         {"", "0", "0123456789ABCDEF00000000000000ff", "0123456789abcdef00000000000000f",
          "0123456789abcdef00000000000000fff", "0123456789abcdef00000000000000fg",
          "0x23456789abcdef00000000000000ff", " 123456789abcdef00000000000000ff"}) {
        EXPECT_EQ(parse_digest(text), std::nullopt) << text;
    }
}

TEST(StateDigest, IsASumThatCanBeTakenBack) {
    const StateDigest x{~std::uint64_t{0}, 5};
    const StateDigest y{3, ~std::uint64_t{0}};
    EXPECT_EQ(x + y - y, x);
    EXPECT_EQ((x + y).a, 2U);
}

TEST(Sha256, KnowsTheStandardAnswer) {
    EXPECT_EQ(to_hex(sha256(as_bytes("abc"))),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(Sha256().add(as_bytes("a")).add({}).add(as_bytes("bc")).finish(),
              sha256(as_bytes("abc")));
}

TEST(ShownText, LeavesGoodTextAlone) {
    EXPECT_EQ(shown("model.layers.0/ä→𝄞"), "'model.layers.0/ä→𝄞'");
    EXPECT_EQ(shown(""), "''");
}

TEST(ShownText, EscapesWhatSteersATerminal) {
    EXPECT_EQ(shown("a\x1B[31mb\n\x7F"), "'a\\x1b[31mb\\x0a\\x7f'");
    EXPECT_EQ(shown("\xC2\x9B"), "'\\xc2\\x9b'") << "the one-character escape sequence of C1";
    EXPECT_EQ(shown(std::string_view("\0", 1)), "'\\x00'");
}

TEST(ShownText, EscapesBrokenUtf8) {
    EXPECT_EQ(shown("\xFF"), "'\\xff'");
    EXPECT_EQ(shown("\xC0\xAF"), "'\\xc0\\xaf'") << "overlong";
    EXPECT_EQ(shown("\xED\xA0\x80"), "'\\xed\\xa0\\x80'") << "surrogate";
    EXPECT_EQ(shown("\xE2\x82"), "'\\xe2\\x82'") << "cut off";
}

TEST(ShownText, CutsLongText) {
    const std::string text = shown(std::string(100'000, 'x'));
    EXPECT_LT(text.size(), 200U);
    EXPECT_TRUE(text.ends_with("…'"));
}

TEST(Utf8, IsCheckedToTheEnd) {
    EXPECT_TRUE(is_valid_utf8("plain, ü, 漢, 🙂"));
    for (const char* bad : {"\x80", "a\xF8", "\xF4\x90\x80\x80", "\xE0\x80\x80", "ok\xC3"}) {
        EXPECT_FALSE(is_valid_utf8(bad));
    }
}

TEST(Deflate, UnpacksWhatItPacked) {
    Bytes plain(100'000);
    for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<std::byte>(i * i >> 7);
    for (const std::size_t size : {0U, 1U, 100U, 100'000U}) {
        plain.resize(size);
        const Bytes packed = value_of(deflate_bytes(plain));
        EXPECT_EQ(value_of(inflate_bytes(packed, size)), plain);
    }
}

TEST(Inflate, RefusesAnotherSizeThanItStates) {
    const Bytes packed = value_of(deflate_bytes(as_bytes("twelve bytes")));
    EXPECT_EQ(outcome_of(inflate_bytes(packed, 12)), "ok");
    EXPECT_EQ(outcome_of(inflate_bytes(packed, 11)), "corrupt");
    EXPECT_EQ(outcome_of(inflate_bytes(packed, 13)), "corrupt");
    EXPECT_EQ(outcome_of(inflate_bytes(packed, 0)), "corrupt");
}

TEST(Inflate, RefusesBytesBehindTheStreamAndStreamsCutOff) {
    Bytes packed = value_of(deflate_bytes(as_bytes("twelve bytes")));
    packed.push_back(std::byte{0});
    EXPECT_EQ(outcome_of(inflate_bytes(packed, 12)), "corrupt");
    packed.resize(packed.size() - 2);
    EXPECT_EQ(outcome_of(inflate_bytes(packed, 12)), "corrupt");
    EXPECT_EQ(outcome_of(inflate_bytes({}, 0)), "corrupt");
}

TEST(Inflate, RefusesAnImpossibleRatioBeforeTakingMemory) {
    const Bytes packed = value_of(deflate_bytes(as_bytes("x")));
    const auto result = inflate_bytes(packed, std::uint64_t{1} << 60);
    EXPECT_EQ(outcome_of(result), "corrupt");
    EXPECT_NE(text_of(result).find("impossible"), std::string::npos);
}

}  // namespace
}  // namespace wisp::testing
