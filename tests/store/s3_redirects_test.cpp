#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>

#include "store/s3_fixture.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

using Request = httplib::Request;
using Response = httplib::Response;

void redirect(Response& response, const std::string& to, int status = 302) {
    response.status = status;
    response.set_header("Location", to);
}

void answer_range(Response& response, const std::string& body) {
    response.status = 206;
    response.set_header("Content-Range", "bytes 0-" + std::to_string(body.size() - 1) + "/" +
                                             std::to_string(body.size()));
    response.set_content(body, "application/octet-stream");
}

TEST(Redirects, LeaveAllCredentialsBehindWhenTheHostChanges) {
    FakeWeb cdn([](const Request&, Response& response) { answer_range(response, "bytes"); });
    const auto environment = [] {
        auto keys = test_keys();
        keys["AWS_SESSION_TOKEN"] = "token-hush";
        return environment_of(keys);
    }();
    FakeWeb gateway([&](const Request&, Response& response) {
        redirect(response, cdn.url("localhost") + "/blob?X-Amz-Signature=abc&x=%2F");
    });
    const auto store = make_s3_store(settings_for(gateway.url()), environment,
                                     std::make_shared<SetClock>(kWebNow));
    Bytes into(10);
    EXPECT_EQ(value_of(store->read("key", 0, into)), 5U);
    ASSERT_EQ(gateway.requests().size(), 1U);
    EXPECT_TRUE(gateway.requests()[0].has_header("Authorization"));
    EXPECT_TRUE(gateway.requests()[0].has_header("x-amz-security-token"));
    ASSERT_EQ(cdn.requests().size(), 1U);
    const Request asked = cdn.requests()[0];
    EXPECT_EQ(asked.target, "/blob?X-Amz-Signature=abc&x=%2F");
    EXPECT_EQ(asked.get_header_value("Range"), "bytes=0-9");
    for (const auto& [name, value] : asked.headers) {
        std::string lower;
        for (const char c : name) lower += static_cast<char>(std::tolower(c));
        EXPECT_NE(lower, "authorization");
        EXPECT_FALSE(lower.starts_with("x-amz-")) << name;
        EXPECT_EQ(value.find("hush"), std::string::npos);
    }
}

TEST(Redirects, ToAnotherPortAreAnotherHost) {
    FakeWeb other([](const Request&, Response& response) { answer_range(response, "x"); });
    FakeS3 s3([&](const Request&, Response& response) { redirect(response, other.url() + "/a"); });
    EXPECT_EQ(value_of(s3.read(1)), 1U);
    EXPECT_FALSE(other.requests().at(0).has_header("Authorization"));
}

TEST(Redirects, OnTheSameHostAreSignedForTheNewPath) {
    FakeS3 s3([](const Request& request, Response& response) {
        if (request.path == "/bucket/key") return redirect(response, "/moved/key", 307);
        answer_range(response, "x");
    });
    EXPECT_EQ(value_of(s3.read(1)), 1U);
    const auto requests = s3.web.requests();
    ASSERT_EQ(requests.size(), 2U);
    EXPECT_TRUE(requests[1].has_header("Authorization"));
    EXPECT_NE(requests[0].get_header_value("Authorization"),
              requests[1].get_header_value("Authorization"));
}

TEST(Redirects, EndAfterThree) {
    FakeS3 s3(
        [](const Request& request, Response& response) { redirect(response, request.path + "x"); });
    EXPECT_EQ(outcome_of(s3.read(1)), "corrupt");
    EXPECT_EQ(s3.web.requests().size(), 4U);
}

TEST(Redirects, OfWritesToOtherHostsAreNotFollowed) {
    FakeWeb other([](const Request&, Response&) {});
    FakeS3 s3([&](const Request&, Response& response) { redirect(response, other.url(), 307); });
    const auto written = s3.store->put("key", as_bytes("secret weights"));
    EXPECT_EQ(outcome_of(written), "invalid");
    EXPECT_NE(text_of(written).find(std::to_string(other.port())), std::string::npos);
    EXPECT_TRUE(other.requests().empty());
}

TEST(Redirects, ToMetadataAndOtherSchemesAreNotFollowed) {
    for (const char* to : {"http://169.254.169.254/latest/meta-data/", "file:///etc/passwd",
                           "http://user:pass@127.0.0.1/", "gopher://127.0.0.1/", "http://"}) {
        FakeS3 s3([&](const Request&, Response& response) { redirect(response, to); });
        EXPECT_EQ(outcome_of(s3.read(1)), "corrupt") << to;
    }
}

TEST(Redirects, ToAnotherRegionAreSignedForIt) {
    FakeS3 s3([](const Request& request, Response& response) {
        const bool right =
            request.get_header_value("Authorization").find("/eu-west-1/s3/") != std::string::npos;
        if (right) return answer_range(response, "x");
        response.set_header("x-amz-bucket-region", "eu-west-1");
        refuse(response, 301, "PermanentRedirect");
    });
    EXPECT_EQ(value_of(s3.read(1)), 1U);
    EXPECT_EQ(s3.web.requests().size(), 2U);
    EXPECT_EQ(value_of(s3.read(1)), 1U);
    EXPECT_EQ(s3.web.requests().size(), 3U);  // remembered
}

TEST(Redirects, NamedInAnErrorAreFollowedToTheRegion) {
    FakeS3 s3([](const Request& request, Response& response) {
        const bool right =
            request.get_header_value("Authorization").find("/ap-south-1/s3/") != std::string::npos;
        if (!right)
            refuse(response, 400, "AuthorizationHeaderMalformed", "<Region>ap-south-1</Region>");
    });
    value_of(s3.store->put("key", as_bytes("x")));
}

/// A certificate for 127.0.0.1 that signs itself.
class Tls {
  public:
    Tls() {
        EVP_PKEY* key = EVP_RSA_gen(2048);
        X509* certificate = X509_new();
        X509_set_version(certificate, 2);
        ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
        X509_gmtime_adj(X509_getm_notBefore(certificate), -86'400);
        X509_gmtime_adj(X509_getm_notAfter(certificate), 86'400);
        X509_set_pubkey(certificate, key);
        X509_NAME* name = X509_get_subject_name(certificate);
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                   reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
        X509_set_issuer_name(certificate, name);
        X509_EXTENSION* names =
            X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
        X509_add_ext(certificate, names, -1);
        X509_EXTENSION_free(names);
        X509_sign(certificate, key, EVP_sha256());
        std::FILE* file = std::fopen(certificate_path().c_str(), "w");
        PEM_write_X509(file, certificate);
        std::fclose(file);
        file = std::fopen(key_path().c_str(), "w");
        PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
        std::fclose(file);
        X509_free(certificate);
        EVP_PKEY_free(key);
    }
    std::unique_ptr<httplib::Server> server() const {
        return std::make_unique<httplib::SSLServer>(certificate_path().c_str(), key_path().c_str());
    }
    std::string certificate_path() const { return (folder_ / "certificate.pem").string(); }

  private:
    std::string key_path() const { return (folder_ / "key.pem").string(); }
    TempFolder folder_;
};

TEST(Redirects, NeverLeaveTls) {
    const Tls tls;
    FakeWeb plain([](const Request&, Response& response) { answer_range(response, "x"); });
    FakeWeb secure(
        [&](const Request& request, Response& response) {
            if (request.path == "/bucket/here") return answer_range(response, "y");
            redirect(response, plain.url() + "/a");
        },
        tls.server());
    const std::string endpoint = "https://127.0.0.1:" + std::to_string(secure.port());
    Bytes into(1);

    const auto distrusted = store_at(endpoint)->read("here", 0, into);
    EXPECT_EQ(outcome_of(distrusted), "denied");
    EXPECT_NE(text_of(distrusted).find("AWS_CA_BUNDLE"), std::string::npos);
    EXPECT_TRUE(secure.requests().empty());

    S3Settings settings = settings_for(endpoint);
    settings.ca_bundle = tls.certificate_path();
    const auto store =
        make_s3_store(settings, environment_of(test_keys()), std::make_shared<SetClock>(kWebNow));
    EXPECT_EQ(value_of(store->read("here", 0, into)), 1U);
    EXPECT_EQ(outcome_of(store->read("there", 0, into)), "corrupt");
    EXPECT_TRUE(plain.requests().empty());
}

TEST(Certificates, OfSslCertFileAreTrustedWithoutASettingOfOurs) {
    const Tls tls;
    FakeWeb secure([](const Request&, Response& response) { answer_range(response, "y"); },
                   tls.server());
    const std::string endpoint = "https://127.0.0.1:" + std::to_string(secure.port());
    Bytes into(1);
    ::setenv("SSL_CERT_FILE", tls.certificate_path().c_str(), 1);
    const auto trusting = store_at(endpoint);
    ::setenv("SSL_CERT_FILE", "/nowhere/own.pem", 1);
    const auto lost = store_at(endpoint);
    ::unsetenv("SSL_CERT_FILE");
    EXPECT_EQ(value_of(trusting->read("here", 0, into)), 1U);
    EXPECT_EQ(outcome_of(lost->read("here", 0, into)), "denied");
}

}  // namespace
}  // namespace wisp::testing
