// Ed25519 over plain bytes (OpenSSL): no domains, no files. wisp/signing.hpp builds on it.
//
// A secret is immutable once made, and OpenSSL only reads it to sign: threads may share one. With a
// sound key OpenSSL can only fail for want of memory: kUnavailable.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "wisp/result.hpp"
#include "wisp/signing.hpp"

namespace wisp {

class Ed25519Secret {
  public:
    static Result<std::shared_ptr<const Ed25519Secret>> generate();
    static Result<std::shared_ptr<const Ed25519Secret>> from_seed(
        std::span<const std::byte, 32> seed);
    /// `name` is where the text came from, for the error.
    static Result<std::shared_ptr<const Ed25519Secret>> from_pem(std::string_view pem,
                                                                 const std::string& name);
    ~Ed25519Secret();
    Ed25519Secret(const Ed25519Secret&) = delete;
    Ed25519Secret& operator=(const Ed25519Secret&) = delete;

    /// The caller wipes it.
    Result<std::string> to_pem() const;
    const std::array<std::byte, 32>& public_bytes() const { return public_bytes_; }
    Result<Signature> sign(std::span<const std::byte> message) const;

  private:
    /// Takes over an EVP_PKEY.
    static Result<std::shared_ptr<const Ed25519Secret>> holding(void* key);
    explicit Ed25519Secret(void* key) : key_(key) {}
    void* key_;  // EVP_PKEY, owned
    std::array<std::byte, 32> public_bytes_{};
};

/// False for a wrong signature, for bytes that are no key, and when there is no memory to find out:
/// a doubt never opens a door.
bool ed25519_verify(std::span<const std::byte, 32> public_key, std::span<const std::byte> message,
                    const Signature& signature);

/// Overwrites a secret in memory, in a way the compiler keeps.
void wipe(std::string& secret);

}  // namespace wisp
