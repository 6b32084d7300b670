// Ed25519 keys: who wrote a record, provable by anyone who has the public half. doc/trust.md.
//
// What is signed is "wisp " + domain + "\n" + bytes, so that a signature made for one purpose is
// worth nothing for another. Keys are values, and all calls may be made from any number of threads;
// only load and save touch files. Any call may answer kUnavailable for want of memory.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "wisp/result.hpp"

namespace wisp {

using Signature = std::array<std::byte, 64>;

/// What a signature is for, e.g. "commit". A literal of lower-case letters and '-', so that no
/// domain can be mistaken for another one followed by bytes.
class SigningDomain {
  public:
    consteval SigningDomain(const char* text) : text_(text) {
        if (text_.empty()) not_a_domain();
        for (const char c : text_) {
            if ((c < 'a' || c > 'z') && c != '-') not_a_domain();
        }
    }
    std::string_view text() const { return text_; }

  private:
    static void not_a_domain() {}  // not constexpr: calling it ends the compilation
    std::string_view text_;
};

struct PublicKey {
    std::array<std::byte, 32> bytes{};

    /// "ed25519:" and 64 lower-case hexadecimal digits, nothing else.
    static Result<PublicKey> parse(std::string_view text);
    /// The text itself, or the path of a file that holds it in one line.
    static Result<PublicKey> load(const std::string& text_or_path);
    std::string to_text() const;
    /// 16 hexadecimal digits of the key's SHA-256: a name for people and logs, never a proof.
    std::string id() const;
    bool verify(SigningDomain domain, std::span<const std::byte> bytes,
                const Signature& signature) const;
    /// Never overwrites: kInvalid when the file is there.
    Result<void> save(const std::filesystem::path& path) const;

    friend bool operator==(const PublicKey&, const PublicKey&) = default;
};

class Ed25519Secret;

/// A private key. Its bytes never appear in a text or an error; copies share one secret.
class SigningKey {
  public:
    static Result<SigningKey> generate();
    /// For tests and simulations: the same seed is the same key.
    static Result<SigningKey> from_seed(std::span<const std::byte, 32> seed);
    /// A PKCS#8 PEM file without a passphrase. kDenied when others than its owner may read it.
    static Result<SigningKey> load(const std::filesystem::path& path);
    /// Readable by the owner only. Never overwrites: kInvalid when the file is there.
    Result<void> save(const std::filesystem::path& path) const;

    PublicKey public_key() const;
    Result<Signature> sign(SigningDomain domain, std::span<const std::byte> bytes) const;

  private:
    explicit SigningKey(std::shared_ptr<const Ed25519Secret> secret);
    std::shared_ptr<const Ed25519Secret> secret_;
};

}  // namespace wisp
