#include "base/ed25519.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/text.hpp"

namespace wisp {
namespace {

template <auto free_it>
struct Free {
    template <class T>
    void operator()(T* pointer) const {
        free_it(pointer);
    }
};
using Bio = std::unique_ptr<BIO, Free<BIO_vfree>>;
using Pkey = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using MdContext = std::unique_ptr<EVP_MD_CTX, Free<EVP_MD_CTX_free>>;

EVP_PKEY* as_pkey(void* key) {
    return static_cast<EVP_PKEY*>(key);
}

const unsigned char* as_octets(std::span<const std::byte> bytes) {
    // OpenSSL takes a null pointer for a question about sizes, even where there are no bytes.
    static constexpr unsigned char kNone = 0;
    return bytes.empty() ? &kNone : reinterpret_cast<const unsigned char*>(bytes.data());
}

std::unexpected<Error> not_done(std::string_view what) {
    ERR_clear_error();  // libcurl must not find it
    return fail(
        ErrorKind::kUnavailable,
        fmt::format("OpenSSL could not {}, most likely for want of memory; try again", what));
}

/// Without this OpenSSL would ask for a passphrase on the terminal.
int no_passphrase(char*, int, int, void* asked) {
    *static_cast<bool*>(asked) = true;
    return -1;
}

}  // namespace

Result<std::shared_ptr<const Ed25519Secret>> Ed25519Secret::holding(void* key) {
    if (key == nullptr) return not_done("make a key");
    const std::shared_ptr<Ed25519Secret> secret(new Ed25519Secret(key));
    std::size_t size = secret->public_bytes_.size();
    auto* const bytes = reinterpret_cast<unsigned char*>(secret->public_bytes_.data());
    if (EVP_PKEY_get_raw_public_key(as_pkey(key), bytes, &size) != 1) {
        return not_done("take the public half of a key");
    }
    return secret;
}

Result<std::shared_ptr<const Ed25519Secret>> Ed25519Secret::generate() {
    return holding(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
}

Result<std::shared_ptr<const Ed25519Secret>> Ed25519Secret::from_seed(
    std::span<const std::byte, 32> seed) {
    return holding(
        EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, as_octets(seed), seed.size()));
}

Result<std::shared_ptr<const Ed25519Secret>> Ed25519Secret::from_pem(std::string_view pem,
                                                                     const std::string& name) {
    const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
    if (!bio) return not_done("read a key");
    bool asked = false;
    Pkey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, &asked));
    ERR_clear_error();  // libcurl must not find it
    if (asked) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("key file {} has a passphrase, which wisp cannot ask for; give it "
                                "a copy without: openssl pkey -in FILE -out COPY",
                                shown(name)));
    }
    if (!key) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} holds no private key in PEM; make one with 'wisp key new'",
                                shown(name)));
    }
    if (EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{} holds a key that is not Ed25519; make one with 'wisp key new'",
                                shown(name)));
    }
    return holding(key.release());
}

Ed25519Secret::~Ed25519Secret() {
    EVP_PKEY_free(as_pkey(key_));
}

Result<std::string> Ed25519Secret::to_pem() const {
    const Bio bio(BIO_new(BIO_s_secmem()));
    if (!bio || PEM_write_bio_PKCS8PrivateKey(bio.get(), as_pkey(key_), nullptr, nullptr, 0,
                                              nullptr, nullptr) != 1) {
        return not_done("write a key");
    }
    char* text = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &text);
    return std::string(text, static_cast<std::size_t>(size));
}

Result<Signature> Ed25519Secret::sign(std::span<const std::byte> message) const {
    const MdContext context(EVP_MD_CTX_new());
    Signature signature{};
    std::size_t size = signature.size();
    const bool done =
        context &&
        EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, as_pkey(key_)) == 1 &&
        EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                       as_octets(message), message.size()) == 1;
    if (!done) return not_done("sign");
    return signature;
}

bool ed25519_verify(std::span<const std::byte, 32> public_key, std::span<const std::byte> message,
                    const Signature& signature) {
    const Pkey key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, as_octets(public_key),
                                               public_key.size()));
    const MdContext context(EVP_MD_CTX_new());
    // OpenSSL 3.0 takes any 32 bytes for a key; another may look whether they are a point.
    const bool holds =
        key && context &&
        EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
        EVP_DigestVerify(context.get(), as_octets(signature), signature.size(), as_octets(message),
                         message.size()) == 1;
    ERR_clear_error();
    return holds;
}

void wipe(std::string& secret) {
    OPENSSL_cleanse(secret.data(), secret.size());
    secret.clear();
}

}  // namespace wisp
