// SHA-256 over a stream of bytes (OpenSSL). Needs no memory, and cannot fail.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace wisp {

using Sha256Digest = std::array<std::byte, 32>;

class Sha256 {
  public:
    Sha256();

    Sha256& add(std::span<const std::byte> bytes);
    /// Ends the stream; the object must not be used afterwards.
    Sha256Digest finish();

    static constexpr std::size_t kContextBytes = 112;  // of OpenSSL's, whose header stays inside

  private:
    std::array<std::uint64_t, kContextBytes / 8> context_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
/// RFC 2104.
Sha256Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> text);
std::string to_hex(const Sha256Digest& digest);

}  // namespace wisp
