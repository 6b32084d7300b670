#include "web/ca_bundle.hpp"

#include <cstdlib>

namespace wisp {
namespace {

constexpr const char* kSystemBundles[] = {
    "etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Gentoo
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // RHEL, Fedora, Amazon Linux
    "etc/pki/tls/certs/ca-bundle.crt",                   // the same, before 7
    "etc/ssl/ca-bundle.pem",                             // SUSE
    "var/lib/ca-certificates/ca-bundle.pem",             // the same, in its containers
    "etc/ssl/cert.pem",                                  // Alpine
};

}  // namespace

std::string find_ca_bundle(const std::filesystem::path& root) {
    const char* const named = std::getenv("SSL_CERT_FILE");
    if (named != nullptr && *named != '\0') return named;
    for (const char* const bundle : kSystemBundles) {
        const std::filesystem::path path = root / bundle;
        std::error_code failed;
        if (std::filesystem::is_regular_file(path, failed)) return path.string();
    }
    return {};
}

}  // namespace wisp
