#include "store/s3/hub_gateway.hpp"

#include <fstream>

#include "store/s3/rate_pacer.hpp"
#include "store/s3_fixture.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

using Request = httplib::Request;
using Response = httplib::Response;
using Variables = std::map<std::string, std::string>;

HubGateway gateway_in(Variables variables) {
    variables.try_emplace("AWS_CONFIG_FILE", "/dev/null");
    variables.try_emplace("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    variables.try_emplace("HF_HOME", "/nonexistent");
    return value_of(hub_gateway_from(environment_of(std::move(variables))));
}

const Variables kKeys = {{"HF_S3_ACCESS_KEY_ID", "id"}, {"HF_S3_SECRET_ACCESS_KEY", kSecret}};

struct FakeGateway {
    explicit FakeGateway(FakeWeb::Answer answer, std::int64_t now_ms = kWebNow)
        : web(std::move(answer)), clock(std::make_shared<SetClock>(now_ms)) {
        Variables variables = kKeys;
        variables["HF_S3_ENDPOINT"] = web.url() + "/";
        const HubGateway gateway = gateway_in(variables);
        S3Settings settings =
            hub_settings({"acme", "weights", ""}, gateway, environment_of(variables));
        settings.stall_timeout = Milliseconds(2000);
        store = make_s3_store(settings, only_keys(gateway.keys), clock);
    }
    FakeWeb web;
    std::shared_ptr<SetClock> clock;
    std::shared_ptr<Store> store;
};

TEST(HubAddress, IsTakenApart) {
    const auto whole = value_of(parse_hub_address("hf://buckets/acme/weights/runs/one/"));
    EXPECT_EQ(whole.id(), "acme/weights");
    EXPECT_EQ(whole.prefix, "runs/one");
    EXPECT_EQ(value_of(parse_hub_address("hf://buckets/acme/weights")).prefix, "");
    for (const char* bad :
         {"hf://", "hf://buckets", "hf://buckets/acme", "hf://buckets//weights", "hf://acme/model",
          "hf://datasets/acme/data", "hf://buckets/acme/weights//run", "hf://buckets/a/b/../c",
          "hf://buckets/acme/weights/a..", "hf://buckets/acme/weights/a\\b",
          "hf://buckets/user:hush@acme/weights", "hf://buckets/../weights"}) {
        EXPECT_EQ(outcome_of(parse_hub_address(bad)), "invalid") << bad;
    }
}

TEST(HubKeys, AreThoseMeantForTheHub) {
    EXPECT_EQ(gateway_in(kKeys).keys.access_key_id, "id");
    // Another store's keys are not tried on the Hub.
    EXPECT_FALSE(
        gateway_in({{"AWS_ACCESS_KEY_ID", "AKIAX"}, {"AWS_SECRET_ACCESS_KEY", "x"}}).ready());
    EXPECT_TRUE(
        gateway_in({{"AWS_ACCESS_KEY_ID", "HFAKX"}, {"AWS_SECRET_ACCESS_KEY", "x"}}).ready());
    EXPECT_EQ(outcome_of(hub_gateway_from(environment_of({{"HF_S3_ACCESS_KEY_ID", "id"}}))),
              "denied");
    const TempFolder folder;
    std::ofstream(folder / "credentials")
        << "[default]\naws_access_key_id = AKIAX\naws_secret_access_key = no\n"
        << "[hf]\naws_access_key_id = HFAKONE\naws_secret_access_key = one\n"
        << "[team]\naws_access_key_id = HFAKTWO\naws_secret_access_key = two\n";
    const std::string file = (folder / "credentials").string();
    EXPECT_EQ(gateway_in({{"AWS_SHARED_CREDENTIALS_FILE", file}}).keys.access_key_id, "HFAKONE");
    EXPECT_EQ(gateway_in({{"AWS_SHARED_CREDENTIALS_FILE", file}, {"AWS_PROFILE", "team"}})
                  .keys.access_key_id,
              "HFAKTWO");
}

TEST(HubKeys, AreAskedForWithTheWayToGetThem) {
    const HubGateway none = gateway_in({});
    EXPECT_FALSE(none.ready());
    EXPECT_FALSE(none.has_token);
    EXPECT_NE(none.lacking.find("Generate S3 credentials"), std::string::npos);
    const TempFolder folder;
    std::ofstream(folder / "token") << "hf_hush\n";
    EXPECT_TRUE(gateway_in({{"HF_TOKEN", "hf_hush"}}).has_token);
    EXPECT_TRUE(gateway_in({{"HF_HOME", folder.path().string()}}).has_token);
    EXPECT_TRUE(gateway_in({{"HF_TOKEN_PATH", (folder / "token").string()}}).has_token);
}

TEST(HubEndpoint, IsThePublicOneOnlyForThePublicHub) {
    EXPECT_EQ(gateway_in(kKeys).endpoint, "https://s3.hf.co");
    Variables variables = kKeys;
    variables["HF_ENDPOINT"] = "https://huggingface.co/";
    EXPECT_EQ(gateway_in(variables).endpoint, "https://s3.hf.co");
    variables["HF_ENDPOINT"] = "https://hub.example.org";
    EXPECT_FALSE(gateway_in(variables).ready());
    EXPECT_NE(gateway_in(variables).lacking.find("HF_S3_ENDPOINT"), std::string::npos);
    variables["HF_S3_ENDPOINT"] = "https://s3.example.org";
    EXPECT_TRUE(gateway_in(variables).ready());
    variables["HF_S3_ENDPOINT"] = "s3.example.org";
    EXPECT_EQ(outcome_of(hub_gateway_from(environment_of(variables))), "invalid");
}

TEST(HubSettings, AreThoseTheHubAsksFor) {
    const S3Settings settings = hub_settings({"acme", "weights", ""}, gateway_in(kKeys),
                                             environment_of({{"AWS_REGION", "eu-west-3"}}));
    EXPECT_EQ(settings.bucket_url(settings.region).text(), "https://s3.hf.co/acme/weights");
    EXPECT_EQ(settings.region, "us-east-1");
    EXPECT_EQ(settings.label(), "hf://buckets/acme/weights");
}

TEST(HubStore, RefusesKeysTheHubDoesNotTakeBeforeAnythingIsSent) {
    FakeGateway hub([](const Request&, Response& response) { response.status = 200; });
    for (const char* key : {"a\\b", "a..", "a../b", "../a", "a//b", "/a", "a/"}) {
        EXPECT_EQ(outcome_of(hub.store->put(key, {})), "invalid") << key;
        EXPECT_EQ(outcome_of(hub.store->create(key, {})), "invalid") << key;
    }
    EXPECT_TRUE(hub.web.requests().empty());
    value_of(hub.store->put("a..b/c", {}));
    EXPECT_EQ(hub.web.requests().at(0).path, "/acme/weights/a..b/c");
}

TEST(HubStore, SaysWhoseKeysToCheck) {
    FakeGateway hub(
        [](const Request&, Response& response) { refuse(response, 403, "SignatureDoesNotMatch"); });
    const auto denied = hub.store->put("a", {});
    EXPECT_EQ(outcome_of(denied), "denied");
    EXPECT_NE(text_of(denied).find("HF_S3_ACCESS_KEY_ID"), std::string::npos);
    EXPECT_EQ(text_of(denied).find("AWS_"), std::string::npos);
}

TEST(HubStore, WaitsAsLongAsTheHubSays) {
    FakeGateway hub([](const Request&, Response& response) {
        response.set_header("RateLimit", "\"api\";r=0;t=55");
        refuse(response, 429, "TooManyRequests");
    });
    const auto refused = hub.store->put("a", {});
    EXPECT_EQ(outcome_of(refused), "unavailable");
    EXPECT_EQ(refused.error().retry_after_ms, 55'000U);
}

TEST(HubStore, SlowsDownBeforeNothingIsLeft) {
    int left = 103;
    FakeGateway hub([&](const Request&, Response& response) {
        response.set_header("RateLimit", "\"api\";r=" + std::to_string(left--) + ";t=100");
    });
    for (int i = 0; i < 4; ++i) value_of(hub.store->put("a", {}));
    EXPECT_EQ(hub.clock->now_ms(), kWebNow) << "there was plenty";
    for (int i = 0; i < 4; ++i) value_of(hub.store->put("a", {}));
    EXPECT_GE(hub.clock->now_ms(), kWebNow + 3 * 900);
    left = 0;
    value_of(hub.store->put("a", {}));
    const std::int64_t before = hub.clock->now_ms();
    value_of(hub.store->put("a", {}));
    EXPECT_EQ(hub.clock->now_ms() - before, 10'000) << "never longer at a time";
}

TEST(RateLimits, AreReadAsTheHubWritesThem) {
    const auto read = [](std::string_view header) { return parse_rate_limit(header); };
    EXPECT_EQ(read("\"api\";r=37;t=120")->remaining, 37U);
    EXPECT_EQ(read("\"api\"; r=37; t=120")->reset_seconds, 120U);
    EXPECT_EQ(read("\"api\";r=37;t=120, \"pages\";r=3;t=9")->remaining, 3U);
    for (const char* nonsense :
         {"", "r", "\"api\";r=;t=", "\"api\";r=x;t=9", "\"api\";t=9", ",,"}) {
        EXPECT_FALSE(read(nonsense)) << nonsense;
    }
    EXPECT_EQ(read("\"api\";r=1;t=99999999")->reset_seconds, 3600U);
}

}  // namespace
}  // namespace wisp::testing
