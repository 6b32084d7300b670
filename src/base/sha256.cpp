// The functions OpenSSL calls low-level: unlike its EVP family they need no memory and no provider,
// so that a hash cannot fail. They are deprecated for what they cannot do, not for what they do.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.hpp"

#include <openssl/sha.h>

#include <algorithm>

#include "base/text.hpp"

namespace wisp {
namespace {

static_assert(sizeof(SHA256_CTX) <= Sha256::kContextBytes);
static_assert(alignof(SHA256_CTX) <= alignof(std::uint64_t));

}  // namespace

Sha256::Sha256() {
    SHA256_Init(reinterpret_cast<SHA256_CTX*>(context_.data()));
}

Sha256& Sha256::add(std::span<const std::byte> bytes) {
    SHA256_Update(reinterpret_cast<SHA256_CTX*>(context_.data()), bytes.data(), bytes.size());
    return *this;
}

Sha256Digest Sha256::finish() {
    Sha256Digest digest{};
    SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()),
                 reinterpret_cast<SHA256_CTX*>(context_.data()));
    return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
    return Sha256().add(bytes).finish();
}

Sha256Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> text) {
    constexpr std::size_t kBlock = 64;
    std::array<std::byte, kBlock> inner{};
    if (key.size() > kBlock) {
        const Sha256Digest shorter = sha256(key);
        std::copy(shorter.begin(), shorter.end(), inner.begin());
    } else {
        std::copy(key.begin(), key.end(), inner.begin());
    }
    std::array<std::byte, kBlock> outer = inner;
    for (std::byte& byte : inner) byte ^= std::byte{0x36};
    for (std::byte& byte : outer) byte ^= std::byte{0x5c};
    const Sha256Digest within = Sha256().add(inner).add(text).finish();
    return Sha256().add(outer).add(within).finish();
}

std::string to_hex(const Sha256Digest& digest) {
    return to_hex(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace wisp
