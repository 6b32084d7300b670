// SHA-256 over a stream of bytes (OpenSSL).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace wisp {

using Sha256Digest = std::array<std::byte, 32>;

class Sha256 {
  public:
    Sha256();
    ~Sha256();
    Sha256(Sha256&&) noexcept;
    Sha256& operator=(Sha256&&) noexcept;

    Sha256& add(std::span<const std::byte> bytes);
    /// Ends the stream; the object must not be used afterwards.
    Sha256Digest finish();

  private:
    struct Context;
    std::unique_ptr<Context> context_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
std::string to_hex(const Sha256Digest& digest);

}  // namespace wisp
