#include "base/sha256.hpp"

#include <openssl/evp.h>

#include <new>

#include "base/text.hpp"

namespace wisp {

struct Sha256::Context {
    EVP_MD_CTX* evp = EVP_MD_CTX_new();
    Context() {
        // OpenSSL can only fail here for want of memory; that is std::bad_alloc everywhere else.
        if (evp == nullptr || EVP_DigestInit_ex(evp, EVP_sha256(), nullptr) != 1) {
            EVP_MD_CTX_free(evp);
            throw std::bad_alloc();
        }
    }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

Sha256& Sha256::add(std::span<const std::byte> bytes) {
    EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size());
    return *this;
}

Sha256Digest Sha256::finish() {
    Sha256Digest digest{};
    EVP_DigestFinal_ex(context_->evp, reinterpret_cast<unsigned char*>(digest.data()), nullptr);
    return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
    return Sha256().add(bytes).finish();
}

std::string to_hex(const Sha256Digest& digest) {
    return to_hex(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace wisp
