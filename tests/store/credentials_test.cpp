#include "store/s3/credentials.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "store/fake_web.hpp"
#include "store/s3/s3_settings.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

using Variables = std::map<std::string, std::string>;
constexpr std::int64_t kNow = 1'800'000'000'000;  // 2027-01-15T08:00:00Z

/// Nothing of the machine the test runs on: no files, no instance.
Variables alone(Variables more) {
    more.try_emplace("AWS_EC2_METADATA_DISABLED", "true");
    more.try_emplace("AWS_CONFIG_FILE", "/nonexistent/config");
    more.try_emplace("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials");
    return more;
}

struct Chain {
    explicit Chain(Variables variables)
        : chain(environment_of(alone(std::move(variables))), std::make_shared<HttpClient>(), clock,
                "eu-west-1") {}
    std::string id() { return value_of(chain.keys()).access_key_id; }
    std::shared_ptr<SetClock> clock = std::make_shared<SetClock>(kNow);
    CredentialChain chain;
};

std::string write(const TempFolder& folder, const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
}

std::string json_keys(const std::string& id, const std::string& expiration) {
    return R"({"Code":"Success","AccessKeyId":")" + id +
           R"(","SecretAccessKey":"hush","Token":"token","Expiration":")" + expiration + R"("})";
}

TEST(Credentials, ComeFromTheEnvironmentFirst) {
    Chain chain(Variables{{"AWS_ACCESS_KEY_ID", "env"},
                          {"AWS_SECRET_ACCESS_KEY", "s"},
                          {"AWS_SESSION_TOKEN", "t"},
                          {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/"}});
    EXPECT_EQ(chain.id(), "env");
    EXPECT_EQ(value_of(chain.chain.keys()).session_token, "t");
}

TEST(Credentials, HalfSetAreRefused) {
    Chain chain(Variables{{"AWS_ACCESS_KEY_ID", "env"}});
    EXPECT_EQ(outcome_of(chain.chain.keys()), "denied");
    EXPECT_NE(text_of(chain.chain.keys()).find("AWS_SECRET_ACCESS_KEY"), std::string::npos);
}

TEST(Credentials, WithALineBreakNeverReachAHeader) {
    Chain chain(
        Variables{{"AWS_ACCESS_KEY_ID", "env\r\nX-Evil: 1"}, {"AWS_SECRET_ACCESS_KEY", "hush"}});
    EXPECT_EQ(outcome_of(chain.chain.keys()), "denied");
    EXPECT_EQ(text_of(chain.chain.keys()).find("hush"), std::string::npos);
}

TEST(Credentials, ComeFromTheSharedFilesOfAProfile) {
    const TempFolder folder;
    const Variables files = {
        {"AWS_SHARED_CREDENTIALS_FILE",
         write(folder, "credentials",
               "# mine\n[default]\naws_access_key_id = one\naws_secret_access_key = s ; note\n"
               "[work]\naws_access_key_id=two\nAWS_SECRET_ACCESS_KEY=s\naws_session_token=t\n")},
        {"AWS_CONFIG_FILE", write(folder, "config",
                                  "[default]\nregion=eu-north-1\ns3 =\n  addressing_style = path\n"
                                  "[ profile   cfg ]\naws_access_key_id = three\n"
                                  "aws_secret_access_key = s\n[profile sso]\nsso_session = x\n")}};
    const auto id_of = [&](const std::string& profile) {
        Variables variables = files;
        variables["AWS_PROFILE"] = profile;
        return Chain(variables).id();
    };
    EXPECT_EQ(id_of(""), "one");
    EXPECT_EQ(id_of("work"), "two");
    EXPECT_EQ(id_of("cfg"), "three");
    Variables variables = files;
    for (const char* profile : {"sso", "nobody"}) {
        variables["AWS_PROFILE"] = profile;
        Chain chain(variables);
        EXPECT_EQ(outcome_of(chain.chain.keys()), "denied") << profile;
        EXPECT_NE(text_of(chain.chain.keys()).find(profile), std::string::npos);
    }
}

TEST(Credentials, AreAskedOfTheContainersAgentWithItsToken) {
    FakeWeb agent([](const auto& request, auto& response) {
        const bool known = request.get_header_value("Authorization") == "Basic dG9rZW4=";
        response.status = known && request.path == "/v1/keys" ? 200 : 403;
        response.set_content(json_keys("box", "2027-01-15T20:00:00Z"), "application/json");
    });
    const TempFolder folder;
    const std::string uri = agent.url() + "/v1/keys";
    Chain by_value(Variables{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", uri},
                             {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic dG9rZW4="}});
    EXPECT_EQ(by_value.id(), "box");
    Chain by_file(
        {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", uri},
         {"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", write(folder, "token", "Basic dG9rZW4=\n")}});
    EXPECT_EQ(by_file.id(), "box");
    Chain unknown(Variables{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", uri}});
    EXPECT_EQ(outcome_of(unknown.chain.keys()), "denied");
    EXPECT_EQ(text_of(unknown.chain.keys()).find("hush"), std::string::npos);
}

TEST(Credentials, AreNotAskedOfStrangersInTheClear) {
    for (const char* uri : {"http://example.com/keys", "http://10.0.0.1/keys", "ftp://127.0.0.1/",
                            "http://127.0.0.1.example.com/"}) {
        Chain chain(Variables{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", uri},
                              {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "hush"}});
        EXPECT_EQ(outcome_of(chain.chain.keys()), "invalid") << uri;
    }
    Chain relative(Variables{{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", ".example.com/"}});
    EXPECT_EQ(outcome_of(relative.chain.keys()), "invalid");
    Chain instance(Variables{{"AWS_EC2_METADATA_DISABLED", "false"},
                             {"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://example.com"}});
    EXPECT_EQ(outcome_of(instance.chain.keys()), "invalid");
}

TEST(Credentials, OfAnInstanceTakeASessionFirst) {
    FakeWeb metadata([](const httplib::Request& request, httplib::Response& response) {
        const std::string roles = "/latest/meta-data/iam/security-credentials/";
        if (request.path == "/latest/api/token") {
            response.status = request.method == "PUT" &&
                                      request.has_header("X-aws-ec2-metadata-token-ttl-seconds")
                                  ? 200
                                  : 405;
            response.set_content("session", "text/plain");
        } else if (request.get_header_value("X-aws-ec2-metadata-token") != "session") {
            response.status = 401;
        } else if (request.path == roles) {
            response.set_content("my-role", "text/plain");
        } else if (request.path == roles + "my-role") {
            response.set_content(json_keys("instance", "2027-01-15T20:00:00Z"), "text/plain");
        } else {
            response.status = 404;
        }
    });
    const Variables on = {{"AWS_EC2_METADATA_DISABLED", ""},
                          {"AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url()}};
    EXPECT_EQ(Chain(on).id(), "instance");
    const std::size_t asked = metadata.requests().size();
    Chain off(Variables{{"AWS_EC2_METADATA_DISABLED", "true"},
                        {"AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url()}});
    EXPECT_EQ(outcome_of(off.chain.keys()), "denied");
    EXPECT_EQ(metadata.requests().size(), asked);
}

TEST(Credentials, OfAWebIdentityTravelInTheBody) {
    FakeWeb sts([](const httplib::Request&, httplib::Response& response) {
        response.set_content(
            "<AssumeRoleWithWebIdentityResponse "
            "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
            "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>web</AccessKeyId>"
            "<SecretAccessKey>hush</SecretAccessKey><SessionToken>t</SessionToken>"
            "<Expiration>2027-01-15T20:00:00Z</Expiration></Credentials>"
            "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
            "text/xml");
    });
    const TempFolder folder;
    Chain chain(
        Variables{{"AWS_ROLE_ARN", "arn:aws:iam::1:role/x"},
                  {"AWS_WEB_IDENTITY_TOKEN_FILE", write(folder, "token", "ey.secret.jwt\n")},
                  {"AWS_ENDPOINT_URL_STS", sts.url()}});
    EXPECT_EQ(chain.id(), "web");
    const auto requests = sts.requests();
    ASSERT_EQ(requests.size(), 1U);
    EXPECT_EQ(requests[0].method, "POST");
    EXPECT_EQ(requests[0].target.find("jwt"), std::string::npos);
    EXPECT_NE(requests[0].body.find("WebIdentityToken=ey.secret.jwt"), std::string::npos);
    EXPECT_NE(requests[0].body.find("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx"),
              std::string::npos);
}

TEST(Credentials, AreRenewedBeforeTheyExpire) {
    std::atomic<int> served = 0;
    std::atomic<bool> down = false;
    FakeWeb agent([&](const auto&, auto& response) {
        if (down) {
            response.status = 500;
            return;
        }
        const int number = ++served;
        response.set_content(
            json_keys("key" + std::to_string(number),
                      number == 1 ? "2027-01-15T09:00:00Z" : "2027-01-15T10:00:00Z"),
            "application/json");
    });
    Chain chain(Variables{{"AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url()}});
    EXPECT_EQ(chain.id(), "key1");
    EXPECT_EQ(chain.id(), "key1");
    chain.clock->set(kNow + 56 * 60'000);
    EXPECT_EQ(chain.id(), "key2");
    // The agent is down while the keys are good for four more minutes, then for none.
    down = true;
    chain.clock->set(kNow + 116 * 60'000);
    EXPECT_EQ(chain.id(), "key2");
    chain.clock->set(kNow + 121 * 60'000);
    EXPECT_EQ(outcome_of(chain.chain.keys()), "unavailable");
    down = false;
    chain.chain.reject({"another", "", ""});
    EXPECT_EQ(chain.id(), "key3");
}

TEST(Credentials, ThatAreNowhereSayWhatToSet) {
    Chain chain(Variables{});
    EXPECT_EQ(outcome_of(chain.chain.keys()), "denied");
    EXPECT_NE(text_of(chain.chain.keys()).find("AWS_PROFILE"), std::string::npos);
}

TEST(Settings, ChooseHowTheBucketIsAddressed) {
    const auto url = [](const std::string& bucket, Variables variables) {
        const auto settings =
            value_of(s3_settings_from(environment_of(alone(std::move(variables))), bucket));
        return settings.bucket_url(settings.region).text();
    };
    EXPECT_EQ(url("data", {}), "https://data.s3.us-east-1.amazonaws.com");
    EXPECT_EQ(url("data", {{"AWS_REGION", "eu-west-3"}}),
              "https://data.s3.eu-west-3.amazonaws.com");
    EXPECT_EQ(url("my.data", {{"AWS_DEFAULT_REGION", "cn-north-1"}}),
              "https://s3.cn-north-1.amazonaws.com.cn/my.data");
    EXPECT_EQ(url("data", {{"AWS_ENDPOINT_URL", "http://localhost:7070"}}),
              "http://localhost:7070/data");
    EXPECT_EQ(url("data", {{"AWS_ENDPOINT_URL", "http://x"},
                           {"AWS_ENDPOINT_URL_S3", "https://s3.hf.co/my-space/"}}),
              "https://s3.hf.co/my-space/data");
}

TEST(Settings, RefuseSecretsInAddressesWithoutRepeatingThem) {
    const auto refused = s3_settings_from(
        environment_of(alone({{"AWS_ENDPOINT_URL", "https://user:hush@host"}})), "data");
    EXPECT_EQ(outcome_of(refused), "invalid");
    EXPECT_EQ(text_of(refused).find("hush"), std::string::npos);
    for (const char* bucket : {"", "ab", "a/b", "a b", "a..b", "x@y.z"}) {
        EXPECT_EQ(outcome_of(s3_settings_from(environment_of(alone({})), bucket)), "invalid");
    }
}

}  // namespace
}  // namespace wisp::testing
