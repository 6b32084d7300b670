#include "wisp/trust.hpp"

#include <gtest/gtest.h>

#include <random>

#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

constexpr std::int64_t kNow = 1'700'000'000'000;
constexpr std::int64_t kDay = 86'400'000;
constexpr std::string_view kBody = "{\"seq\":7}";

SigningKey key_number(int number) {
    std::array<std::byte, 32> seed{};
    seed[0] = static_cast<std::byte>(number);
    return value_of(SigningKey::from_seed(seed));
}

const SigningKey kRoot = key_number(1);
const SigningKey kTrainer = key_number(2);
const SigningKey kStranger = key_number(3);

Certificate certificate(const SigningKey& root = kRoot, std::uint64_t serial = 5,
                        std::int64_t expires_ms = kNow + kDay) {
    return value_of(Certificate::make(root, kTrainer.public_key(), serial, expires_ms));
}

std::string block_of(const SigningKey& key, const std::optional<Certificate>& by = std::nullopt) {
    return value_of(write_signature_block(key, by, "commit", as_bytes(kBody)));
}

TrustPolicy trusting(const SigningKey& key, std::uint64_t min_serial = 0) {
    return TrustPolicy{{key.public_key()}, min_serial};
}

Result<Signer> check(const TrustPolicy& policy, std::string_view block,
                     std::string_view body = kBody, std::int64_t now_ms = kNow) {
    auto signer = check_signature(policy.keys, "commit", as_bytes(body), block);
    if (!signer) return signer;
    if (auto current = check_current(*signer, policy.min_serial, now_ms); !current) {
        return std::unexpected(std::move(current).error());
    }
    return signer;
}

void expect_refusal(const Result<Signer>& result, const std::string& kind,
                    const std::string& text) {
    EXPECT_EQ(outcome_of(result), kind);
    EXPECT_NE(text_of(result).find(text), std::string::npos) << text_of(result);
}

TEST(Trust, AcceptsATrustedKey) {
    const Signer signer = value_of(check(trusting(kTrainer), block_of(kTrainer)));
    EXPECT_EQ(signer.how, Signer::How::kTrusted);
    EXPECT_EQ(signer.key_id, kTrainer.public_key().id());
    EXPECT_EQ(signer.serial, std::nullopt);
}

TEST(Trust, AcceptsAKeyThatATrustedOneCertified) {
    TrustPolicy policy = trusting(kRoot, 5);
    policy.keys.insert(policy.keys.begin(), kStranger.public_key());
    const Signer signer = value_of(check(policy, block_of(kTrainer, certificate())));
    EXPECT_EQ(signer.how, Signer::How::kCertified);
    EXPECT_EQ(signer.key_id, kTrainer.public_key().id());
    EXPECT_EQ(signer.serial, 5U);
}

TEST(Trust, AsksNothingOfTheCertificateWhenTheKeyItselfIsTrusted) {
    const auto expired = certificate(kStranger, 0, 0);
    const Signer signer = value_of(check(trusting(kTrainer, 9), block_of(kTrainer, expired)));
    EXPECT_EQ(signer.how, Signer::How::kTrusted);
}

TEST(Trust, TakesNoUnsignedRecord) {
    expect_refusal(check(trusting(kTrainer), ""), "denied", "commit is not signed");
    expect_refusal(check(TrustPolicy{}, ""), "denied", "commit is not signed");
}

TEST(Trust, TellsWhoSignedEvenWhenTheCertificateHasEnded) {
    const std::string block = block_of(kTrainer, certificate(kRoot, 5, kNow));
    const Signer signer =
        value_of(check_signature(trusting(kRoot).keys, "commit", as_bytes(kBody), block));
    EXPECT_EQ(signer.how, Signer::How::kCertified);
    EXPECT_EQ(signer.ends_ms, kNow);
    EXPECT_EQ(outcome_of(check_current(signer, 0, kNow - 1)), "ok");
    EXPECT_EQ(outcome_of(check_current(signer, 0, kNow)), "denied");
    EXPECT_EQ(outcome_of(check_current(signer, 6, kNow - 1)), "denied");
}

TEST(Trust, RefusesStrangers) {
    expect_refusal(
        check(trusting(kTrainer), block_of(kStranger)), "denied",
        "signed by key " + kStranger.public_key().id() + ", which is not among the trusted");
    expect_refusal(check(TrustPolicy{}, block_of(kTrainer)), "denied", "not among the trusted");
    expect_refusal(check(TrustPolicy{}, "nonsense\n"), "corrupt", "malformed");
}

TEST(Trust, RefusesAChangedBodyAndAnotherDomain) {
    for (const auto& [policy, block] :
         {std::pair(trusting(kTrainer), block_of(kTrainer)),
          std::pair(trusting(kRoot), block_of(kTrainer, certificate()))}) {
        for (std::size_t i = 0; i < kBody.size(); ++i) {
            std::string body(kBody);
            body[i] ^= 1;
            expect_refusal(check(policy, block, body), "corrupt", "does not fit the commit");
        }
        expect_refusal(check(policy, block, ""), "corrupt", "does not fit the commit");
        EXPECT_EQ(outcome_of(check_signature(policy.keys, "format", as_bytes(kBody), block)),
                  "corrupt");
    }
}

TEST(Trust, RefusesAnExpiredCertificateFromThatMillisecondOn) {
    const std::string block = block_of(kTrainer, certificate(kRoot, 5, kNow));
    EXPECT_EQ(outcome_of(check(trusting(kRoot), block, kBody, kNow - 1)), "ok");
    expect_refusal(check(trusting(kRoot), block, kBody, kNow), "denied",
                   "expired at 2023-11-14T22:13:20Z");
}

TEST(Trust, RefusesARevokedSerial) {
    const std::string block = block_of(kTrainer, certificate(kRoot, 3));
    EXPECT_EQ(outcome_of(check(trusting(kRoot, 3), block)), "ok");
    expect_refusal(check(trusting(kRoot, 5), block), "denied", "certificate serial 3");
    expect_refusal(check(trusting(kRoot, 5), block), "denied", "revoked: at least 5 is needed");
}

TEST(Trust, RefusesACertificateOfAnotherRoot) {
    expect_refusal(check(trusting(kRoot), block_of(kTrainer, certificate(kStranger))), "denied",
                   "nor is key " + kStranger.public_key().id());
    // Certified by itself is certified by a stranger.
    expect_refusal(check(trusting(kRoot), block_of(kTrainer, certificate(kTrainer))), "denied",
                   "not among the trusted");
}

TEST(Trust, RefusesACertificateThatOnlyClaimsTheRoot) {
    Certificate forged = certificate(kStranger);
    forged.root_id = kRoot.public_key().id();
    expect_refusal(check(trusting(kRoot), block_of(kTrainer, forged)), "corrupt", "forged");
    for (const auto& change : std::vector<void (*)(Certificate&)>{
             [](Certificate& c) { c.serial += 1; }, [](Certificate& c) { c.expires_ms += 1; },
             [](Certificate& c) { c.signature[10] ^= std::byte{1}; }}) {
        Certificate changed = certificate();
        change(changed);
        expect_refusal(check(trusting(kRoot), block_of(kTrainer, changed)), "corrupt", "forged");
    }
}

TEST(Trust, DoesNotLetACertifiedKeyCertify) {
    const Certificate second =
        value_of(Certificate::make(kTrainer, kStranger.public_key(), 9, kNow + kDay));
    const std::string block = block_of(kStranger, second);
    expect_refusal(check(trusting(kRoot), block), "denied", "not among the trusted");
    EXPECT_EQ(outcome_of(check(trusting(kRoot), block + certificate().to_text() + "\n")),
              "corrupt");
}

TEST(Trust, DoesNotTakeACommitForACertificate) {
    // A trainer who is trusted directly must not be able to sign text that reads as a certificate.
    Certificate forged = certificate();
    forged.root_id = kTrainer.public_key().id();
    const std::string line = forged.to_text();
    forged.signature = value_of(kTrainer.sign("commit", as_bytes(line.substr(0, line.rfind(' ')))));
    EXPECT_FALSE(forged.signed_by(kTrainer.public_key()));
}

TEST(Trust, WritesNoBlockWithTheCertificateOfAnotherKey) {
    const auto block = write_signature_block(kStranger, certificate(), "commit", as_bytes(kBody));
    EXPECT_EQ(outcome_of(block), "invalid");
}

TEST(Trust, RefusesEveryTruncationOfABlock) {
    const std::string block = block_of(kTrainer, certificate());
    EXPECT_LE(block.size(), kSignatureBlockBytes);
    for (std::size_t length = 1; length < block.size(); ++length) {
        const auto result = check(trusting(kRoot), block.substr(0, length));
        // The first line alone is a sound block, signed by a key that nobody vouches for.
        const bool is_line = length == block.find('\n') + 1;
        EXPECT_EQ(outcome_of(result), is_line ? "denied" : "corrupt") << length;
    }
}

TEST(Trust, RefusesEveryChangedByteOfABlock) {
    const std::string block = block_of(kTrainer, certificate());
    const TrustPolicy policy = trusting(kRoot);
    for (std::size_t at = 0; at < block.size(); ++at) {
        for (const char byte :
             {'\0', '\n', ' ', '0', '9', 'a', 'F', '-', '\xFF', static_cast<char>(block[at] ^ 1)}) {
            std::string bad = block;
            bad[at] = byte;
            if (bad == block) continue;
            EXPECT_EQ(check(policy, bad).has_value(), false) << at << " " << int{byte};
        }
        std::string longer = block;
        longer.insert(at, 1, '0');
        EXPECT_FALSE(check(policy, longer).has_value()) << at;
    }
}

TEST(Trust, RefusesWhatIsNoBlock) {
    const std::string block = block_of(kTrainer, certificate());
    const std::string plain = block_of(kTrainer);
    const std::string upper = "ED25519" + plain.substr(7);
    for (const std::string& bad :
         {std::string("\n"), std::string("\0", 1), plain + "\n", plain + plain, block + "\n",
          block + block, "\n" + plain, " " + plain, upper,
          plain + std::string(kSignatureBlockBytes, ' ') + "\n",
          plain + certificate().to_text() + "\r\n", certificate().to_text() + "\n"}) {
        expect_refusal(check(trusting(kTrainer), bad), "corrupt", "malformed");
    }
}

TEST(Trust, SurvivesBlocksOfRandomEdits) {
    std::mt19937_64 random(7);
    const std::string block = block_of(kTrainer, certificate());
    for (int round = 0; round < 2000; ++round) {
        std::string bad = block;
        for (std::uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
            const std::size_t at = random() % bad.size();
            switch (random() % 3) {
                case 0: bad[at] = static_cast<char>(random()); break;
                case 1: bad.erase(at, 1 + random() % 20); break;
                default: bad.insert(at, bad.substr(random() % bad.size(), random() % 30)); break;
            }
            if (bad.empty()) bad = "x";
        }
        if (bad == block) continue;
        EXPECT_FALSE(check(trusting(kRoot), bad).has_value()) << bad;
    }
}

TEST(Certificate, ReadsItsOwnLineAndNoOther) {
    const Certificate made = certificate();
    const std::string line = made.to_text();
    for (const std::string& text : {line, line + "\n"}) {
        const Certificate read = value_of(Certificate::parse(text));
        EXPECT_EQ(read.to_text(), line);
        EXPECT_TRUE(read.signed_by(kRoot.public_key()));
        EXPECT_FALSE(read.signed_by(kStranger.public_key()));
    }
    const auto with = [&](const std::string& serial, const std::string& expires) {
        return outcome_of(Certificate::parse("wisp-cert 1 " + std::string(64, 'a') + " " + serial +
                                             " " + expires + " " + std::string(16, 'b') + " " +
                                             std::string(128, 'c')));
    };
    EXPECT_EQ(with("0", "0"), "ok");
    EXPECT_EQ(with("18446744073709551615", "253402300799999"), "ok");
    for (const char* bad : {"", "01", "+1", "-1", "1.0", "18446744073709551616", "0x1", "1e3"}) {
        EXPECT_EQ(with(bad, "0"), "corrupt") << bad;
        EXPECT_EQ(with("0", bad), "corrupt") << bad;
    }
    EXPECT_EQ(with("0", "253402300800000"), "corrupt");
    EXPECT_EQ(outcome_of(Certificate::parse("wisp-cert 2" + line.substr(11))), "unsupported");
    EXPECT_EQ(outcome_of(Certificate::parse(line + " ")), "corrupt");
    EXPECT_EQ(outcome_of(Certificate::parse("wisp-cert 1 " + std::string(600, ' '))), "corrupt");
}

TEST(Certificate, CannotBeMadeForTimesThatHaveNoText) {
    for (const std::int64_t time : {std::int64_t{-1}, std::int64_t{253'402'300'800'000}}) {
        EXPECT_EQ(outcome_of(Certificate::make(kRoot, kTrainer.public_key(), 1, time)), "invalid");
    }
}

TEST(Certificate, ReplacesAnOlderOneButNoOtherFile) {
    const TempFolder folder;
    value_of(certificate(kRoot, 1).save(folder / "c"));
    value_of(certificate(kRoot, 2).save(folder / "c"));
    EXPECT_EQ(value_of(Certificate::load(folder / "c")).serial, 2U);
    value_of(kTrainer.save(folder / "key"));
    const auto before = read_bytes(folder / "key");
    EXPECT_EQ(outcome_of(certificate().save(folder / "key")), "invalid");
    EXPECT_EQ(read_bytes(folder / "key"), before);
    EXPECT_EQ(outcome_of(Certificate::load(folder / "key")), "corrupt");
    EXPECT_EQ(outcome_of(Certificate::load(folder / "missing")), "not_found");
}

}  // namespace
}  // namespace wisp::testing
