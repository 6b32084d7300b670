// Ed25519 over plain bytes (OpenSSL): no domains, no files. wisp/signing.hpp builds on it.
//
// A secret is immutable once made, and OpenSSL only reads it to sign: threads may share one.
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
    static std::shared_ptr<const Ed25519Secret> generate();
    static std::shared_ptr<const Ed25519Secret> from_seed(std::span<const std::byte, 32> seed);
    /// `name` is where the text came from, for the error.
    static Result<std::shared_ptr<const Ed25519Secret>> from_pem(std::string_view pem,
                                                                 const std::string& name);
    ~Ed25519Secret();
    Ed25519Secret(const Ed25519Secret&) = delete;
    Ed25519Secret& operator=(const Ed25519Secret&) = delete;

    /// The caller wipes it.
    std::string to_pem() const;
    std::array<std::byte, 32> public_bytes() const;
    Signature sign(std::span<const std::byte> message) const;

  private:
    explicit Ed25519Secret(void* key) : key_(key) {}
    void* key_;  // EVP_PKEY, owned
};

/// False for a wrong signature and for bytes that are no key.
bool ed25519_verify(std::span<const std::byte, 32> public_key, std::span<const std::byte> message,
                    const Signature& signature);

/// Overwrites a secret in memory, in a way the compiler keeps.
void wipe(std::string& secret);

}  // namespace wisp
