#include "web/ca_bundle.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

/// SSL_CERT_FILE as a test wants it, and afterwards as it was.
class CertificateVariable {
  public:
    explicit CertificateVariable(const char* value) {
        if (const char* const before = std::getenv(kName)) before_ = before;
        value == nullptr ? ::unsetenv(kName) : ::setenv(kName, value, 1);
    }
    ~CertificateVariable() { before_ ? ::setenv(kName, before_->c_str(), 1) : ::unsetenv(kName); }
    CertificateVariable(const CertificateVariable&) = delete;
    CertificateVariable& operator=(const CertificateVariable&) = delete;

  private:
    static constexpr const char* kName = "SSL_CERT_FILE";
    std::optional<std::string> before_;
};

class CaBundle : public ::testing::TestWithParam<const char*> {};

TEST_P(CaBundle, IsFoundWhereTheSystemKeepsIt) {
    const CertificateVariable unset(nullptr);
    const TempFolder root;
    const std::filesystem::path place = root / GetParam();
    std::filesystem::create_directories(place.parent_path());
    EXPECT_EQ(find_ca_bundle(root.path()), "");
    std::ofstream(place) << "certificates";
    EXPECT_EQ(find_ca_bundle(root.path()), place.string());
}

INSTANTIATE_TEST_SUITE_P(Systems, CaBundle,
                         ::testing::Values("etc/ssl/certs/ca-certificates.crt",  // Debian
                                           "etc/pki/tls/certs/ca-bundle.crt",    // RHEL
                                           "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                           "etc/ssl/ca-bundle.pem",  // SUSE
                                           "etc/ssl/cert.pem"));     // Alpine

TEST(CaBundleSetting, ComesBeforeTheSystemsEvenWhenTheFileIsMissing) {
    const TempFolder root;
    std::filesystem::create_directories(root / "etc/ssl");
    std::ofstream(root / "etc/ssl/cert.pem") << "certificates";
    const CertificateVariable named("/nowhere/own.pem");
    EXPECT_EQ(find_ca_bundle(root.path()), "/nowhere/own.pem");
}

TEST(CaBundleSetting, CountsAsUnsetWhenEmpty) {
    const CertificateVariable empty("");
    const TempFolder root;
    EXPECT_EQ(find_ca_bundle(root.path()), "");
}

}  // namespace
}  // namespace wisp::testing
