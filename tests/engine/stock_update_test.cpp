// vLLM's own routes, and SGLang's.
#include <gtest/gtest.h>

#include "engine/fake_engine.hpp"
#include "engine/sglang_payload.hpp"
#include "expect_result.hpp"
#include "wisp/engine_driver.hpp"

namespace wisp::testing {
namespace {

using Json = nlohmann::json;
using Reply = FakeEngine::Reply;
using Acts = std::vector<std::string>;

EngineOptions options_for(const std::string& url, EngineKind kind) {
    EngineOptions options;
    options.servers = {{url, kind, ""}};
    options.run = "s3://bucket/run";
    options.answer_timeout = Milliseconds(5'000);
    options.update_timeout = Milliseconds(5'000);
    options.watch = Milliseconds(0);
    return options;
}

const Acts kMove = {"/pause?mode=keep", "/start_weight_update", "/update_weights",
                    "/finish_weight_update", "/resume"};

Acts last(const Acts& acts, std::size_t count) {
    return Acts(acts.end() - static_cast<std::ptrdiff_t>(std::min(count, acts.size())), acts.end());
}

TEST(StockUpdate, PausesUpdatesNamesTheVersionAndResumes) {
    FakeStockVllm server;
    auto driver = value_of(EngineDriver::open(options_for(server.url(), EngineKind::kVllm)));
    const auto report = driver.update({3, ""})[0];
    ASSERT_TRUE(report.ok()) << report.error->text;
    EXPECT_TRUE(report.moved && report.initialized);
    EXPECT_EQ(report.served, 3U);
    EXPECT_GT(report.pause_seconds, 0);
    EXPECT_EQ(server.acts().at(0), "/init_weight_transfer_engine");
    EXPECT_EQ(last(server.acts(), 5), kMove);
    EXPECT_EQ(server.bodies("/update_weights").at(0),
              Json::parse(R"({"update_info": {"step": 3}})"));
    EXPECT_EQ(server.bodies("/finish_weight_update").at(0).at("weight_version"), "3");
    (void)driver.update({4, ""});
    EXPECT_EQ(server.bodies("/init_weight_transfer_engine").size(), 1U);
}

TEST(StockUpdate, ResumesWhateverFails) {
    for (const char* failing : {"POST /pause", "POST /start_weight_update", "POST /update_weights",
                                "POST /finish_weight_update"}) {
        FakeStockVllm server;
        server.on(failing, [](const Json&) {
            return Reply{500, {{"error", {{"message", "out of luck"}}}}};
        });
        auto driver = value_of(EngineDriver::open(options_for(server.url(), EngineKind::kVllm)));
        const auto report = driver.update({3, ""})[0];
        ASSERT_FALSE(report.ok()) << failing;
        EXPECT_NE(report.error->text.find("out of luck"), std::string::npos);
        EXPECT_EQ(server.acts().back(), "/resume") << failing;
        EXPECT_FALSE(report.moved);
    }
}

TEST(StockUpdate, ResumesWhenTheDriverIsEndedInBetween) {
    Gate gate;
    Gate asked;
    FakeStockVllm server;
    server.on("POST /update_weights", [&](const Json&) {
        asked.open();
        gate.wait();
        return Reply{};
    });
    {
        auto options = options_for(server.url(), EngineKind::kVllm);
        options.update_timeout = Milliseconds(600'000);
        auto driver = value_of(EngineDriver::open(options));
        driver.aim({1, ""});
        asked.wait();
    }
    EXPECT_EQ(server.acts().back(), "/resume");
    gate.open();
}

TEST(StockUpdate, SaysWhenAServerMayStillBePaused) {
    FakeStockVllm server;
    server.on("POST /resume", [](const Json&) { return Reply{500, Json::object()}; });
    auto driver = value_of(EngineDriver::open(options_for(server.url(), EngineKind::kVllm)));
    const auto report = driver.update({3, ""})[0];
    ASSERT_FALSE(report.ok());
    EXPECT_NE(report.error->text.find("POST " + server.url() + "/resume"), std::string::npos);
    EXPECT_EQ(last(server.acts(), 3), (Acts{"/resume", "/resume", "/resume"}));
}

TEST(StockUpdate, EndsAnUpdateThatSomebodyLeftOpen) {
    FakeStockVllm server;
    bool open = true;
    server.on("POST /start_weight_update",
              [&](const Json&) { return Reply{open ? 500 : 200, Json::object()}; });
    server.on("POST /finish_weight_update", [&](const Json&) {
        open = false;
        return Reply{};
    });
    auto driver = value_of(EngineDriver::open(options_for(server.url(), EngineKind::kVllm)));
    (void)driver.update({3, ""});
    EXPECT_EQ(
        last(server.acts(), 7),
        (Acts{"/pause?mode=keep", "/start_weight_update", "/finish_weight_update",
              "/start_weight_update", "/update_weights", "/finish_weight_update", "/resume"}));
}

/// An SGLang server whose loader stages and takes what it is told.
class FakeSglang : public FakeEngine {
  public:
    FakeSglang() {
        on("GET /model_info", [](const Json&) { return Reply{200, {{"model_path", "m"}}}; });
        on("GET /server_info", [](const Json&) {
            return Reply{
                200, {{"tp_size", 2}, {"custom_weight_loader", {"a.b", "wisp.sglang.load_delta"}}}};
        });
        on("POST /get_weights_by_name", [this](const Json&) {
            if (!called) return Reply{400, {{"error", {{"message", "failed"}}}}};
            Json bytes = Json::array();
            const Json record = {{"run", "s3://bucket/run"},
                                 {"staged", 5},
                                 {"served", served ? Json(*served) : Json()},
                                 {"error", served ? "" : "rank 1: out of memory"}};
            for (const char c : record.dump()) bytes.push_back(static_cast<double>(c));
            return Reply{200, bytes};
        });
        on("POST /update_weights_from_tensor", [this](const Json&) {
            if (called && takes) served = 5;
            called = true;
            return Reply{200, {{"success", true}, {"message", "Success"}}};
        });
        for (const char* path :
             {"/pause_generation", "/continue_generation", "/update_weight_version",
              "/begin_weight_update", "/end_weight_update"}) {
            on(std::string("POST ") + path, [](const Json&) { return Reply{}; });
        }
    }
    bool called = false;
    bool takes = true;
    std::optional<std::uint64_t> served;
    /// Without those that only look.
    Acts deeds() const {
        Acts found = acts();
        std::erase(found, "/get_weights_by_name");
        return found;
    }
};

TEST(SglangSession, CallsTheLoaderInEveryWorkerAndNamesTheVersionInsideThePause) {
    FakeSglang server;
    auto driver = value_of(EngineDriver::open(options_for(server.url(), EngineKind::kSglang)));
    const auto report = driver.update({5, ""})[0];
    ASSERT_TRUE(report.ok()) << report.error->text;
    EXPECT_EQ(report.served, 5U);
    EXPECT_EQ(server.deeds(),
              (Acts{"/pause_generation", "/begin_weight_update", "/update_weights_from_tensor",
                    "/end_weight_update", "/continue_generation",  // it is set up
                    "/pause_generation", "/begin_weight_update", "/update_weights_from_tensor",
                    "/end_weight_update", "/update_weight_version", "/continue_generation"}));
    EXPECT_EQ(server.bodies("/pause_generation").at(0).at("mode"), "in_place");
    EXPECT_EQ(server.bodies("/pause_generation").at(1).at("mode"), "retract");
    const Json sent = server.bodies("/update_weights_from_tensor").at(1);
    EXPECT_EQ(sent.at("load_format"), "wisp.sglang.load_delta");
    EXPECT_EQ(sent.at("flush_cache"), true);
    ASSERT_EQ(sent.at("serialized_named_tensors").size(), 2U);
    EXPECT_EQ(sent.at("serialized_named_tensors")[0],
              sglang_payload({{"action", "apply"}, {"run", "s3://bucket/run"}, {"step", 5}}));
    EXPECT_EQ(server.bodies("/update_weight_version").at(0).at("new_version"), "5");
}

TEST(SglangSession, NamesNoVersionThatTheLoaderDidNotTakeAndContinues) {
    FakeSglang server;
    server.takes = false;
    auto driver = value_of(EngineDriver::open(options_for(server.url(), EngineKind::kSglang)));
    const auto report = driver.update({5, ""})[0];
    ASSERT_FALSE(report.ok());
    EXPECT_NE(report.error->text.find("rank 1: out of memory"), std::string::npos);
    EXPECT_TRUE(server.bodies("/update_weight_version").empty());
    EXPECT_EQ(server.deeds().back(), "/continue_generation");
}

TEST(SglangSession, SaysHowToStartAServer) {
    FakeSglang server;
    server.on("GET /server_info", [](const Json&) {
        return Reply{200, {{"tp_size", 1}, {"custom_weight_loader", Json::array()}}};
    });
    auto driver = value_of(EngineDriver::open(options_for(server.url(), EngineKind::kSglang)));
    const auto report = driver.update({5, ""})[0];
    EXPECT_NE(report.error->text.find("--custom-weight-loader wisp.sglang.load_delta"),
              std::string::npos);
    EXPECT_EQ(server.deeds().back(), "/continue_generation");
}

TEST(SglangSession, TakesNoHarmFromDeeplyNestedAnswers) {
    // Copied or written again, this would take more stack than there is.
    constexpr std::size_t kDeep = 500'000;
    const std::string deep =
        R"({"model_path":)" + std::string(kDeep, '[') + std::string(kDeep, ']') + "}";
    const FakeWeb server([&](const httplib::Request& request, httplib::Response& response) {
        const bool is_info = request.path == "/model_info";
        response.set_content(is_info ? deep : "{}", "application/json");
    });
    auto driver = value_of(EngineDriver::open(options_for(server.url(), EngineKind::kSglang)));
    const auto report = driver.update({5, ""})[0];
    ASSERT_FALSE(report.ok());
    EXPECT_NE(report.error->text.find("tp_size"), std::string::npos) << report.error->text;
}

TEST(SglangPayload, IsAPickleThatNamesOneThing) {
    // As pickle.dumps([("wisp", torch.ByteTensor([...]))], 2) would call it, byte by byte.
    EXPECT_EQ(sglang_payload({{"a", 1}}),
              "gAJdWAQAAAB3aXNwY3RvcmNoCkJ5dGVUZW5zb3IKXShLe0siS2FLIks6SzFLfWWFUoZhLg==");
}

TEST(SglangPayload, ForeignRecordsAreHeldToTheirShape) {
    EXPECT_FALSE(sglang_record(Json::parse("[1, 2]")));
    EXPECT_FALSE(sglang_record(Json::parse("[1e300]")));
    EXPECT_FALSE(sglang_record(Json::parse(R"(["a"])")));
    EXPECT_FALSE(sglang_record(Json::parse(R"({"a": 1})")));
    EXPECT_EQ(sglang_record(Json::parse("[123.0, 125]")), Json::object());
}

}  // namespace
}  // namespace wisp::testing
