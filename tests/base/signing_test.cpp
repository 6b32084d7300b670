#include "wisp/signing.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/ed25519.hpp"
#include "base/small_file.hpp"
#include "base/text.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

Bytes unhex(std::string_view text) {
    Bytes bytes(text.size() / 2);
    if (!from_hex(text, bytes)) throw std::runtime_error("not hexadecimal");
    return bytes;
}

std::string hex(std::span<const std::byte> bytes) {
    return to_hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

struct Vector {
    const char* seed;
    const char* public_key;
    const char* message;
    const char* signature;
};

// RFC 8032, section 7.1: TEST 1, 2, 3 and SHA(abc).
constexpr Vector kVectors[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9"
     "b46bd25bf5f0595bbe24655141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f1"
     "1d8c387b2eaeb4302aeeb00d291612bb0c00"},
    {"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984d"
     "c6594a7c15e9716ed28dc027beceea1ec40a"},
    {"833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
     "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
     "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3fe"
     "ebbd454d4423643ce80e2a9ac94fa54ca49f",
     "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431"
     "e0303dca179c138ac17ad9bef1177331a704"},
};

SigningKey key_of(const char* seed) {
    const Bytes bytes = unhex(seed);
    return value_of(SigningKey::from_seed(std::span<const std::byte, 32>(bytes.data(), 32)));
}

TEST(Ed25519, AgreesWithRfc8032) {
    for (const Vector& vector : kVectors) {
        const Bytes seed = unhex(vector.seed);
        const Bytes message = unhex(vector.message);
        const auto secret =
            value_of(Ed25519Secret::from_seed(std::span<const std::byte, 32>(seed.data(), 32)));
        EXPECT_EQ(hex(secret->public_bytes()), vector.public_key);
        const Signature signature = value_of(secret->sign(message));
        EXPECT_EQ(hex(signature), vector.signature);
        EXPECT_TRUE(ed25519_verify(secret->public_bytes(), message, signature));
        EXPECT_EQ(key_of(vector.seed).public_key().to_text(),
                  std::string("ed25519:") + vector.public_key);
    }
}

TEST(Ed25519, RefusesASignatureWithTheGroupOrderAdded) {
    // The same point equation holds, so a reader that does not check would accept a second text.
    const Bytes seed = unhex(kVectors[1].seed);
    const Bytes message = unhex(kVectors[1].message);
    const auto secret =
        value_of(Ed25519Secret::from_seed(std::span<const std::byte, 32>(seed.data(), 32)));
    Signature signature = value_of(secret->sign(message));
    const Bytes order = unhex("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
    unsigned carry = 0;
    for (std::size_t i = 0; i < 32; ++i) {
        carry += static_cast<unsigned>(signature[32 + i]) + static_cast<unsigned>(order[i]);
        signature[32 + i] = static_cast<std::byte>(carry & 0xFF);
        carry >>= 8;
    }
    EXPECT_EQ(carry, 0U);
    EXPECT_FALSE(ed25519_verify(secret->public_bytes(), message, signature));
}

TEST(Signing, IsThePrimitiveOverTheDomainAndTheBytes) {
    const SigningKey key = key_of(kVectors[0].seed);
    const Bytes seed = unhex(kVectors[0].seed);
    const auto secret =
        value_of(Ed25519Secret::from_seed(std::span<const std::byte, 32>(seed.data(), 32)));
    EXPECT_EQ(value_of(key.sign("commit", as_bytes("body"))),
              value_of(secret->sign(as_bytes("wisp commit\nbody"))));
    EXPECT_EQ(value_of(key.sign("commit", {})), value_of(secret->sign(as_bytes("wisp commit\n"))));
}

TEST(Signing, HoldsForItsDomainBytesAndKeyOnly) {
    const SigningKey key = key_of(kVectors[0].seed);
    const PublicKey other = key_of(kVectors[1].seed).public_key();
    const Signature signature = value_of(key.sign("commit", as_bytes("body")));
    EXPECT_TRUE(key.public_key().verify("commit", as_bytes("body"), signature));
    EXPECT_FALSE(key.public_key().verify("format", as_bytes("body"), signature));
    EXPECT_FALSE(key.public_key().verify("commit", as_bytes("bodY"), signature));
    EXPECT_FALSE(key.public_key().verify("commit", as_bytes("body\n"), signature));
    EXPECT_FALSE(key.public_key().verify("commit", {}, signature));
    EXPECT_FALSE(other.verify("commit", as_bytes("body"), signature));
    EXPECT_FALSE(PublicKey{}.verify("commit", as_bytes("body"), signature));
}

TEST(Signing, BreaksWithAnyBitOfTheSignatureOrTheKey) {
    const SigningKey key = key_of(kVectors[2].seed);
    const Signature good = value_of(key.sign("commit", as_bytes("body")));
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
        Signature bad = good;
        bad[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
        EXPECT_FALSE(key.public_key().verify("commit", as_bytes("body"), bad)) << bit;
    }
    for (std::size_t bit = 0; bit < 256; ++bit) {
        PublicKey bad = key.public_key();
        bad.bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
        EXPECT_FALSE(bad.verify("commit", as_bytes("body"), good)) << bit;
    }
}

TEST(Signing, GeneratesAnotherKeyEachTime) {
    EXPECT_NE(value_of(SigningKey::generate()).public_key(),
              value_of(SigningKey::generate()).public_key());
}

TEST(PublicKey, ReadsItsOwnTextAndNothingElse) {
    const PublicKey key = key_of(kVectors[0].seed).public_key();
    const std::string text = key.to_text();
    EXPECT_EQ(value_of(PublicKey::parse(text)), key);
    EXPECT_EQ(key.id(), "21fe31dfa154a261");
    for (std::size_t length = 0; length < text.size(); ++length) {
        EXPECT_EQ(outcome_of(PublicKey::parse(text.substr(0, length))), "invalid") << length;
    }
    std::string upper = text;
    upper[8] = 'D';
    for (const std::string& bad :
         {text + "\n", text + "0", " " + text, upper, "ed448:" + text.substr(8)}) {
        EXPECT_EQ(outcome_of(PublicKey::parse(bad)), "invalid") << bad;
    }
}

TEST(PublicKey, LoadsFromTextOrFile) {
    const TempFolder folder;
    const PublicKey key = key_of(kVectors[0].seed).public_key();
    value_of(key.save(folder / "k.pub"));
    EXPECT_EQ(value_of(PublicKey::load((folder / "k.pub").string())), key);
    EXPECT_EQ(value_of(PublicKey::load(key.to_text())), key);
    EXPECT_EQ(outcome_of(PublicKey::load((folder / "missing").string())), "not_found");
    EXPECT_EQ(outcome_of(PublicKey::load(folder.path().string())), "invalid");
}

TEST(PublicKey, SaysNothingOfAFileThatHoldsSomethingElse) {
    const TempFolder folder;
    write_bytes(folder / "other", as_bytes("password=hunter2\n"));
    value_of(value_of(SigningKey::generate()).save(folder / "private"));
    const auto other = PublicKey::load((folder / "other").string());
    EXPECT_EQ(outcome_of(other), "invalid");
    EXPECT_EQ(text_of(other).find("hunter2"), std::string::npos);
    const auto secret = PublicKey::load((folder / "private").string());
    EXPECT_NE(text_of(secret).find("holds a private key"), std::string::npos);
    EXPECT_EQ(text_of(secret).find("BEGIN"), std::string::npos);
    write_bytes(folder / "long", Bytes(5000));
    EXPECT_EQ(outcome_of(PublicKey::load((folder / "long").string())), "invalid");
}

TEST(SigningKey, ComesBackFromItsFile) {
    const TempFolder folder;
    const SigningKey key = value_of(SigningKey::generate());
    value_of(key.save(folder / "k"));
    struct stat status = {};
    ASSERT_EQ(::stat((folder / "k").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    const SigningKey again = value_of(SigningKey::load(folder / "k"));
    EXPECT_EQ(again.public_key(), key.public_key());
    EXPECT_EQ(value_of(again.sign("commit", as_bytes("x"))),
              value_of(key.sign("commit", as_bytes("x"))));
}

TEST(SigningKey, NeverOverwrites) {
    const TempFolder folder;
    write_bytes(folder / "k", as_bytes("precious"));
    fs::create_symlink("nowhere", folder / "link");
    for (const char* name : {"k", "link"}) {
        EXPECT_EQ(outcome_of(value_of(SigningKey::generate()).save(folder / name)), "invalid");
        EXPECT_EQ(outcome_of(value_of(SigningKey::generate()).public_key().save(folder / name)),
                  "invalid");
    }
    EXPECT_EQ(fs::file_size(folder / "k"), 8U);
    EXPECT_FALSE(fs::exists(folder / "nowhere"));
    EXPECT_EQ(outcome_of(value_of(SigningKey::generate()).save(folder / "no/such/k")), "not_found");
}

TEST(SigningKey, IsRefusedWhenOthersMayReadIt) {
    const TempFolder folder;
    value_of(value_of(SigningKey::generate()).save(folder / "k"));
    for (const mode_t mode : {0640U, 0604U, 0660U, 0620U, 0644U, 0666U}) {
        ASSERT_EQ(::chmod((folder / "k").c_str(), mode), 0);
        const auto key = SigningKey::load(folder / "k");
        EXPECT_EQ(outcome_of(key), "denied");
        EXPECT_NE(text_of(key).find("chmod 600"), std::string::npos);
    }
    ASSERT_EQ(::chmod((folder / "k").c_str(), 0400), 0);
    EXPECT_EQ(outcome_of(SigningKey::load(folder / "k")), "ok");
}

TEST(SigningKey, RefusesFilesThatHoldNoEd25519Key) {
    constexpr std::string_view kX25519 =
        "-----BEGIN PRIVATE KEY-----\n"
        "MC4CAQAwBQYDK2VuBCIEIDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw\n"
        "-----END PRIVATE KEY-----\n";
    constexpr std::string_view kEncrypted =
        "-----BEGIN RSA PRIVATE KEY-----\n"
        "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\n"
        "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA=\n"
        "-----END RSA PRIVATE KEY-----\n";
    const TempFolder folder;
    const auto load = [&](std::string_view text) {
        fs::remove(folder / "k");
        value_of(write_new_file(folder / "k", text, Readers::kOwnerOnly));
        return SigningKey::load(folder / "k");
    };
    EXPECT_NE(text_of(load(kX25519)).find("not Ed25519"), std::string::npos);
    EXPECT_NE(text_of(load(kEncrypted)).find("passphrase"), std::string::npos);
    for (const std::string& text : {std::string(), std::string("nonsense\n"),
                                    std::string("-----BEGIN PRIVATE KEY-----\nAAAA\n"
                                                "-----END PRIVATE KEY-----\n"),
                                    std::string(4096, '\0')}) {
        EXPECT_NE(text_of(load(text)).find("no private key"), std::string::npos) << text.size();
    }
    EXPECT_EQ(outcome_of(load(std::string(4097, 'x'))), "invalid");
}

}  // namespace
}  // namespace wisp::testing
