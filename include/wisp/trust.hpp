// Whom to believe: certificates, the signature block under a record, and the policy of a reader.
//
// A record is accepted when it was signed by a trusted key, or by a key that a trusted key has
// certified: doc/trust.md. Everything is a value and pure, save load and save, and may be used from
// any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wisp/result.hpp"
#include "wisp/signing.hpp"

namespace wisp {

/// The word of a root key that a subject may sign until a time. In one line:
/// "wisp-cert 1 <subject hex> <serial> <expires_ms> <root id> <signature hex>".
struct Certificate {
    PublicKey subject;
    std::uint64_t serial = 0;     // raised by the root; a policy may refuse low ones
    std::int64_t expires_ms = 0;  // since 1970; not valid from that moment on
    std::string root_id;          // who signed, for finding the key
    Signature signature{};

    /// kInvalid when `expires_ms` is not between 1970 and the year 9999.
    static Result<Certificate> make(const SigningKey& root, const PublicKey& subject,
                                    std::uint64_t serial, std::int64_t expires_ms);
    /// One line, with or without its line end. Says nothing yet about who signed it.
    static Result<Certificate> parse(std::string_view line);
    static Result<Certificate> load(const std::filesystem::path& path);
    /// Replaces an older certificate atomically, but no file that is anything else.
    Result<void> save(const std::filesystem::path& path) const;
    std::string to_text() const;
    bool signed_by(const PublicKey& root) const;
};

/// Who signs the commits one writes.
struct RunSigner {
    SigningKey key;
    std::optional<Certificate> certificate;  // a root's word for the key
    /// Read again for every signature, so that a renewal reaches a writer that runs. Empty: the
    /// certificate stays what it is.
    std::filesystem::path certificate_file = {};

    /// Of a key's file and, unless empty, that of its certificate.
    static Result<RunSigner> load(const std::filesystem::path& key,
                                  const std::filesystem::path& certificate);
    /// What the file holds now, if it is there and for this key; else `certificate`.
    std::optional<Certificate> current_certificate() const;
};

struct TrustPolicy {
    std::vector<PublicKey> keys;   // trainers' keys, or the roots that certify them
    std::uint64_t min_serial = 0;  // certificates below it are revoked
};

struct Signer {
    /// kUnchecked: by the run's own keys, which nobody has named to this reader.
    enum class How { kUnsigned, kUnchecked, kTrusted, kCertified };
    How how = How::kUnsigned;
    std::string key_id;                   // empty when unsigned
    std::optional<std::uint64_t> serial;  // of the certificate
    std::int64_t ends_ms = 0;             // of the certificate; 0: there is none, and no end
};

/// The largest signature block that is looked at.
inline constexpr std::size_t kSignatureBlockBytes = 1024;

/// "ed25519 <key id> <signature hex>\n" and, with a certificate, its line. kInvalid when the
/// certificate is for another key.
Result<std::string> write_signature_block(const SigningKey& key,
                                          const std::optional<Certificate>& certificate,
                                          SigningDomain domain, std::span<const std::byte> bytes);

/// Who signed `bytes`, if one of `keys` did or has certified who did, whenever that was. kCorrupt:
/// the block is malformed, or a signature does not fit its bytes. kDenied: unsigned, or a stranger.
Result<Signer> check_signature(const std::vector<PublicKey>& keys, SigningDomain domain,
                               std::span<const std::byte> bytes, std::string_view block);

/// Whether what such a signer says counts by itself at `now_ms`: kDenied when the certificate has
/// ended or its serial is below `min_serial`. An older record counts all the same when a newer one
/// that does is built on it.
Result<void> check_current(const Signer& signer, std::uint64_t min_serial, std::int64_t now_ms);

}  // namespace wisp
