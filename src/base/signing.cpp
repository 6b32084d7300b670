#include "wisp/signing.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/bytes.hpp"
#include "base/ed25519.hpp"
#include "base/sha256.hpp"
#include "base/small_file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kKeyPrefix = "ed25519:";
constexpr std::size_t kKeyIdDigits = 16;
constexpr std::size_t kKeyFileBytes = 4096;

Bytes message(SigningDomain domain, std::span<const std::byte> bytes) {
    constexpr std::string_view kLead = "wisp ";
    Bytes whole;
    whole.reserve(kLead.size() + domain.text().size() + 1 + bytes.size());
    for (const std::string_view part : {kLead, domain.text(), std::string_view("\n")}) {
        const auto span = as_bytes(part);
        whole.insert(whole.end(), span.begin(), span.end());
    }
    whole.insert(whole.end(), bytes.begin(), bytes.end());
    return whole;
}

}  // namespace

Result<PublicKey> PublicKey::parse(std::string_view text) {
    PublicKey key;
    if (!text.starts_with(kKeyPrefix) || !from_hex(text.substr(kKeyPrefix.size()), key.bytes)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} is not a public key; one reads 'ed25519:' and 64 lower-case "
                                "hexadecimal digits",
                                shown(text)));
    }
    return key;
}

Result<PublicKey> PublicKey::load(const std::string& text_or_path) {
    if (text_or_path.starts_with(kKeyPrefix)) return parse(text_or_path);
    WISP_ASSIGN(std::string text, read_small_file(text_or_path, kKeyFileBytes, Readers::kAnyone));
    if (text.find("PRIVATE KEY-----") != std::string::npos) {
        // The text itself must not reach a message.
        wipe(text);
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} holds a private key where a public one is wanted; name its "
                                ".pub file, and keep this one to yourself",
                                shown(text_or_path)));
    }
    std::string_view line = text;
    if (line.ends_with('\n')) line.remove_suffix(1);
    auto key = parse(line);
    if (!key) {
        // Not the file's text: a wrong file may hold anyone's secret.
        key.error().text = fmt::format(
            "file {} holds no public key; one reads 'ed25519:' and 64 lower-case hexadecimal "
            "digits, in one line",
            shown(text_or_path));
    }
    return key;
}

std::string PublicKey::to_text() const {
    return std::string(kKeyPrefix) +
           to_hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string PublicKey::id() const {
    return to_hex(sha256(bytes)).substr(0, kKeyIdDigits);
}

bool PublicKey::verify(SigningDomain domain, std::span<const std::byte> signed_bytes,
                       const Signature& signature) const {
    return ed25519_verify(bytes, message(domain, signed_bytes), signature);
}

Result<void> PublicKey::save(const fs::path& path) const {
    return write_new_file(path, to_text() + "\n", Readers::kAnyone);
}

SigningKey::SigningKey(std::shared_ptr<const Ed25519Secret> secret) : secret_(std::move(secret)) {}

Result<SigningKey> SigningKey::generate() {
    WISP_ASSIGN(auto secret, Ed25519Secret::generate());
    return SigningKey(std::move(secret));
}

Result<SigningKey> SigningKey::from_seed(std::span<const std::byte, 32> seed) {
    WISP_ASSIGN(auto secret, Ed25519Secret::from_seed(seed));
    return SigningKey(std::move(secret));
}

Result<SigningKey> SigningKey::load(const fs::path& path) {
    WISP_ASSIGN(std::string pem, read_small_file(path, kKeyFileBytes, Readers::kOwnerOnly));
    auto secret = Ed25519Secret::from_pem(pem, path.string());
    wipe(pem);
    if (!secret) return std::unexpected(std::move(secret).error());
    return SigningKey(*std::move(secret));
}

Result<void> SigningKey::save(const fs::path& path) const {
    WISP_ASSIGN(std::string pem, secret_->to_pem());
    auto written = write_new_file(path, pem, Readers::kOwnerOnly);
    wipe(pem);
    return written;
}

PublicKey SigningKey::public_key() const {
    return PublicKey{secret_->public_bytes()};
}

Result<Signature> SigningKey::sign(SigningDomain domain, std::span<const std::byte> bytes) const {
    return secret_->sign(message(domain, bytes));
}

}  // namespace wisp
