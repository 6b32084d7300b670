#include "wisp/trust.hpp"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/small_file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr SigningDomain kCertificateDomain = "certificate";
constexpr std::string_view kCertificateLead = "wisp-cert ";
constexpr std::size_t kKeyIdDigits = 16;
constexpr std::size_t kCertificateBytes = 512;
constexpr std::int64_t kLastExpiryMs = 253'402'300'799'999;  // the end of the year 9999

std::string hex_of(std::span<const std::byte> bytes) {
    return to_hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

/// Takes the text up to `end` off the front; nothing when `end` does not occur.
std::optional<std::string_view> take_until(std::string_view& text, char end) {
    const std::size_t at = text.find(end);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view taken = text.substr(0, at);
    text.remove_prefix(at + 1);
    return taken;
}

/// Decimal, in the one shortest form, so that a certificate has one text only.
bool read_number(std::string_view text, std::uint64_t& value) {
    if (text.empty() || (text.size() > 1 && text.front() == '0')) return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

bool is_key_id(std::string_view text) {
    return text.size() == kKeyIdDigits &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// `ms` lies between 1970 and 9999.
std::string utc_text(std::int64_t ms) {
    using namespace std::chrono;
    const sys_seconds time = floor<seconds>(sys_time<milliseconds>(milliseconds(ms)));
    const auto day = floor<days>(time);
    const year_month_day date(day);
    const hh_mm_ss clock(time - day);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                       static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                       clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

/// What the root signs: all of the line but the signature.
std::string signed_part(const Certificate& certificate) {
    return fmt::format("{}1 {} {} {} {}", kCertificateLead, hex_of(certificate.subject.bytes),
                       certificate.serial, certificate.expires_ms, certificate.root_id);
}

struct SignatureBlock {
    std::string_view key_id;
    Signature signature{};
    std::optional<Certificate> certificate;
};

std::unexpected<Error> malformed(std::string_view what) {
    return fail(ErrorKind::kCorrupt,
                fmt::format("the signature block is malformed: {}; fetch it again", what));
}

Result<SignatureBlock> parse_block(std::string_view text) {
    if (text.size() > kSignatureBlockBytes) return malformed("it is too long");
    SignatureBlock block;
    auto line = take_until(text, '\n');
    if (!line) return malformed("its first line does not end");
    const auto algorithm = take_until(*line, ' ');
    const auto id = take_until(*line, ' ');
    if (algorithm != "ed25519") return malformed("it does not start with 'ed25519 '");
    if (!id || !is_key_id(*id)) return malformed("the key id is not 16 hexadecimal digits");
    if (!from_hex(*line, block.signature)) {
        return malformed("the signature is not 128 hexadecimal digits");
    }
    block.key_id = *id;
    if (text.empty()) return block;
    const auto second = take_until(text, '\n');
    if (!second) return malformed("its last line does not end");
    if (!text.empty()) return malformed("something follows the certificate");
    WISP_ASSIGN(block.certificate, Certificate::parse(*second));
    if (block.certificate->subject.id() != block.key_id) {
        return malformed("the certificate is for another key than the one that signed");
    }
    return block;
}

/// Whether one of `keys` made the certificate.
Result<void> check_certificate(const std::vector<PublicKey>& keys, const Certificate& certificate,
                               std::string_view noun) {
    bool is_known = false;
    bool holds = false;
    for (const PublicKey& root : keys) {
        if (root.id() != certificate.root_id) continue;
        is_known = true;
        holds = holds || certificate.signed_by(root);
    }
    const std::string key_id = certificate.subject.id();
    if (!is_known) {
        return fail(ErrorKind::kDenied,
                    fmt::format("{} is signed by key {}, which is not among the trusted, nor is "
                                "key {}, which certified it; check --trust",
                                noun, key_id, certificate.root_id));
    }
    if (!holds) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("the certificate of key {} does not carry the signature of root "
                                "{}: it was changed or forged; fetch it again",
                                key_id, certificate.root_id));
    }
    return {};
}

}  // namespace

Result<Certificate> Certificate::make(const SigningKey& root, const PublicKey& subject,
                                      std::uint64_t serial, std::int64_t expires_ms) {
    if (expires_ms < 0 || expires_ms > kLastExpiryMs) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("a certificate cannot expire at {} ms after 1970; choose a time "
                                "before the year 10000",
                                expires_ms));
    }
    Certificate made{subject, serial, expires_ms, root.public_key().id(), {}};
    WISP_ASSIGN(made.signature, root.sign(kCertificateDomain, as_bytes(signed_part(made))));
    return made;
}

Result<Certificate> Certificate::parse(std::string_view line) {
    const auto bad = [](std::string_view what) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("the certificate is malformed: {}; fetch it again, or have it "
                                "made again with 'wisp key certify'",
                                what));
    };
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.size() > kCertificateBytes) return bad("it is too long");
    if (!line.starts_with(kCertificateLead)) return bad("it does not start with 'wisp-cert '");
    line.remove_prefix(kCertificateLead.size());
    const auto version = take_until(line, ' ');
    std::uint64_t number = 0;
    if (!version || !read_number(*version, number)) return bad("it has no version");
    if (number != 1) {
        return fail(
            ErrorKind::kUnsupported,
            fmt::format("the certificate has version {}, and this wisp knows 1; upgrade", number));
    }
    Certificate read;
    const auto subject = take_until(line, ' ');
    const auto serial = take_until(line, ' ');
    const auto expiry = take_until(line, ' ');
    const auto root = take_until(line, ' ');
    if (!root) return bad("it has too few fields");
    if (!from_hex(*subject, read.subject.bytes)) return bad("its subject is not a key");
    if (!read_number(*serial, read.serial)) return bad("its serial is not a number");
    if (!read_number(*expiry, number) || number > kLastExpiryMs)
        return bad("its expiry is no time");
    if (!is_key_id(*root)) return bad("its root is not a key id");
    if (!from_hex(line, read.signature)) return bad("its signature is not 128 hexadecimal digits");
    read.expires_ms = static_cast<std::int64_t>(number);
    read.root_id = *root;
    return read;
}

Result<Certificate> Certificate::load(const fs::path& path) {
    WISP_ASSIGN(const std::string text, read_small_file(path, kCertificateBytes, Readers::kAnyone));
    auto certificate = parse(text);
    if (!certificate) {
        certificate.error().text =
            fmt::format("file {}: {}", shown(path.string()), certificate.error().text);
    }
    return certificate;
}

Result<void> Certificate::save(const fs::path& path) const {
    if (std::error_code ignored; fs::exists(fs::symlink_status(path, ignored)) && !load(path)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} is there already and is not a certificate; it stays as it is, "
                                "choose another name",
                                shown(path.string())));
    }
    WISP_ASSIGN(PendingFile file, PendingFile::create(path));
    WISP_TRY(file.append(as_bytes(to_text() + "\n")));
    return file.commit();
}

std::string Certificate::to_text() const {
    return signed_part(*this) + " " + hex_of(signature);
}

bool Certificate::signed_by(const PublicKey& root) const {
    return root.verify(kCertificateDomain, as_bytes(signed_part(*this)), signature);
}

Result<std::string> write_signature_block(const SigningKey& key,
                                          const std::optional<Certificate>& certificate,
                                          SigningDomain domain, std::span<const std::byte> bytes) {
    const PublicKey own = key.public_key();
    if (certificate && certificate->subject != own) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("the certificate is for key {}, but the signing key is {}; use the "
                                "certificate that was made for it",
                                certificate->subject.id(), own.id()));
    }
    WISP_ASSIGN(const Signature signature, key.sign(domain, bytes));
    std::string block = fmt::format("ed25519 {} {}\n", own.id(), hex_of(signature));
    if (certificate) block += certificate->to_text() + "\n";
    return block;
}

Result<Signer> check_signature(const std::vector<PublicKey>& keys, SigningDomain domain,
                               std::span<const std::byte> bytes, std::string_view block) {
    const std::string_view noun = domain.text();
    if (block.empty()) {
        return fail(ErrorKind::kDenied,
                    fmt::format("{} is not signed; sign with --sign-key", noun));
    }
    WISP_ASSIGN(const SignatureBlock parsed, parse_block(block));
    Signer signer{Signer::How::kTrusted, std::string(parsed.key_id), std::nullopt};
    bool is_known = false;
    for (const PublicKey& key : keys) {
        if (key.id() != parsed.key_id) continue;
        is_known = true;
        if (key.verify(domain, bytes, parsed.signature)) return signer;
    }
    if (!is_known) {
        if (!parsed.certificate) {
            return fail(ErrorKind::kDenied,
                        fmt::format("{} is signed by key {}, which is not among the trusted; check "
                                    "--trust, or have a trusted root certify that key",
                                    noun, parsed.key_id));
        }
        WISP_TRY(check_certificate(keys, *parsed.certificate, noun));
        if (parsed.certificate->subject.verify(domain, bytes, parsed.signature)) {
            signer.how = Signer::How::kCertified;
            signer.serial = parsed.certificate->serial;
            signer.ends_ms = parsed.certificate->expires_ms;
            return signer;
        }
    }
    return fail(ErrorKind::kCorrupt,
                fmt::format("the signature of key {} does not fit the {}: one of them was changed "
                            "or forged; fetch it again",
                            parsed.key_id, noun));
}

Result<RunSigner> RunSigner::load(const std::filesystem::path& key,
                                  const std::filesystem::path& certificate) {
    WISP_ASSIGN(SigningKey loaded, SigningKey::load(key));
    RunSigner signer{std::move(loaded), std::nullopt, certificate};
    if (!certificate.empty()) {
        WISP_ASSIGN(signer.certificate, Certificate::load(certificate));
    }
    return signer;
}

std::optional<Certificate> RunSigner::current_certificate() const {
    if (certificate_file.empty()) return certificate;
    auto now = Certificate::load(certificate_file);
    // Gone, or another key's: what was read at first may still do, and if not, the judge of one's
    // own commits says so.
    if (!now || now->subject != key.public_key()) return certificate;
    return std::move(*now);
}

Result<void> check_current(const Signer& signer, std::uint64_t min_serial, std::int64_t now_ms) {
    if (!signer.serial) return {};
    if (*signer.serial < min_serial) {
        return fail(ErrorKind::kDenied,
                    fmt::format("certificate serial {} of key {} was revoked: at least {} is "
                                "needed; have the root certify the trainer's key again",
                                *signer.serial, signer.key_id, min_serial));
    }
    if (now_ms >= signer.ends_ms) {
        return fail(ErrorKind::kDenied,
                    fmt::format("certificate of key {} expired at {}; have the root certify the "
                                "trainer's key again, and check this machine's clock",
                                signer.key_id, utc_text(signer.ends_ms)));
    }
    return {};
}

}  // namespace wisp
