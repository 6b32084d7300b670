#include "wisp/engine_driver.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>

#include "base/stopwatch.hpp"
#include "engine/fake_engine.hpp"
#include "expect_result.hpp"
#include "wisp/control.hpp"

namespace wisp::testing {
namespace {

using Json = nlohmann::json;
using Reply = FakeEngine::Reply;
using Acts = std::vector<std::string>;

EngineOptions options_for(const std::vector<std::string>& urls) {
    EngineOptions options;
    for (const auto& url : urls) options.servers.push_back({url, EngineKind::kVllm, ""});
    options.run = "s3://bucket/run";
    options.connect_timeout = Milliseconds(1'000);
    options.answer_timeout = Milliseconds(5'000);
    options.update_timeout = Milliseconds(5'000);
    options.watch = Milliseconds(0);
    return options;
}

/// What on_report was told, in order.
class Reports {
  public:
    void operator()(const EngineReport& report) {
        const std::scoped_lock lock(mutex_);
        all_.push_back(report);
        changed_.notify_all();
    }
    EngineReport wait_for(const std::function<bool(const EngineReport&)>& test) {
        std::unique_lock lock(mutex_);
        for (std::size_t next = 0;; ++next) {
            changed_.wait(lock, [&] { return next < all_.size(); });
            if (test(all_[next])) return all_[next];
        }
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<EngineReport> all_;
};

/// A port that nobody listens on.
std::string dead_url() {
    return FakeEngine().url();
}

TEST(EngineDriver, SetsServersUpAndBringsThemToTheStepTogether) {
    FakeVllm one;
    FakeVllm two;
    auto options = options_for({one.url(), two.url()});
    options.trust = {"ed25519:aa"};
    auto driver = value_of(EngineDriver::open(options));
    for (const auto& report : driver.update({7, ""})) {
        ASSERT_TRUE(report.ok()) << report.error->text;
        EXPECT_EQ(report.served, 7U);
        EXPECT_TRUE(report.moved && report.initialized);
        EXPECT_DOUBLE_EQ(report.pause_seconds, 0.004);
        ASSERT_EQ(report.phases.size(), 2U);
        EXPECT_EQ(report.phases[0].first, "applied");
    }
    EXPECT_EQ(one.acts(), (Acts{"/wisp/init", "/wisp/update"}));
    EXPECT_EQ(one.bodies("/wisp/init").at(0),
              Json::parse(R"({"init_info": {"run": "s3://bucket/run", "trust": ["ed25519:aa"],
                              "mode": "push"}})"));
    EXPECT_EQ(one.bodies("/wisp/update").at(0),
              Json::parse(R"({"step": 7, "mode": "keep", "timeout": 5.0})"));
    // Once set up, only the step is told; and nothing when it is there.
    EXPECT_TRUE(driver.update({8, ""})[1].moved);
    EXPECT_FALSE(driver.update({8, ""})[1].moved);
    EXPECT_EQ(two.acts(), (Acts{"/wisp/init", "/wisp/update", "/wisp/update"}));
}

TEST(EngineDriver, TakesAStepAnewThatWasPublishedAnewAndGoesBack) {
    FakeVllm server;
    auto driver = value_of(EngineDriver::open(options_for({server.url()})));
    (void)driver.update({3, "one"});
    (void)driver.update({3, "one"});
    EXPECT_EQ(server.acts().size(), 2U);
    (void)driver.update({3, "another"});
    EXPECT_EQ(server.acts().size(), 3U);
    EXPECT_EQ(driver.update({1, "old"})[0].served, 1U);
}

TEST(EngineDriver, DeadServerHoldsNobodyAndIsNamed) {
    FakeVllm living;
    const std::string dead = dead_url();
    auto driver = value_of(EngineDriver::open(options_for({dead, living.url()})));
    const Stopwatch watch;
    const auto reports = driver.update({1, ""});
    EXPECT_LT(watch.seconds(), 4);
    ASSERT_FALSE(reports[0].ok());
    EXPECT_EQ(reports[0].error->kind, ErrorKind::kUnavailable);
    EXPECT_NE(reports[0].error->text.find(dead), std::string::npos);
    EXPECT_FALSE(reports[0].served);
    EXPECT_TRUE(reports[1].ok());
}

TEST(EngineDriver, SilentServerTimesOutOnceAndThenHoldsNobody) {
    Gate gate;
    FakeVllm living;
    FakeEngine silent;
    silent.on("GET /wisp/status", [&](const Json&) {
        gate.wait();
        return Reply{};
    });
    auto options = options_for({silent.url(), living.url()});
    options.answer_timeout = Milliseconds(5'000);
    auto driver = value_of(EngineDriver::open(options));
    EXPECT_FALSE(driver.update({1, ""})[0].ok());
    const Stopwatch watch;
    const auto reports = driver.update({2, ""});
    EXPECT_LT(watch.seconds(), 4.9);
    EXPECT_FALSE(reports[0].ok());
    EXPECT_NE(reports[0].error->text.find("behind"), std::string::npos) << reports[0].error->text;
    EXPECT_EQ(reports[1].served, 2U);
    gate.open();
}

TEST(EngineDriver, SlowServerIsNotWaitedForByAim) {
    Gate gate;
    Gate begun;
    FakeVllm fast;
    FakeVllm slow;
    slow.on("POST /wisp/update", [&](const Json& body) {
        begun.open();
        gate.wait();
        return Reply{200, {{"served", body.at("step")}}};
    });
    Reports reports;
    auto options = options_for({slow.url(), fast.url()});
    options.update_timeout = Milliseconds(60'000);
    options.on_report = std::ref(reports);
    auto driver = value_of(EngineDriver::open(options));
    for (std::uint64_t step = 1; step <= 3; ++step) {
        driver.aim({step, ""});
        begun.wait();
        (void)reports.wait_for(
            [&](const auto& r) { return r.url == fast.url() && r.served == step; });
    }
    gate.open();
    (void)reports.wait_for([&](const auto& r) { return r.url == slow.url() && r.served == 3U; });
    // Two is not made up for: the newest step is one move away.
    const auto asked = slow.bodies("/wisp/update");
    ASSERT_EQ(asked.size(), 2U);
    EXPECT_EQ(asked[0].at("step"), 1);
    EXPECT_EQ(asked[1].at("step"), 3);
}

TEST(EngineDriver, ServerThatComesBackIsSetUpAndBroughtToTheNewestInOneMove) {
    FakeVllm server;
    Reports reports;
    auto options = options_for({server.url()});
    options.watch = Milliseconds(10);
    options.on_report = std::ref(reports);
    auto driver = value_of(EngineDriver::open(options));
    (void)driver.update({1, ""});
    (void)driver.update({9, ""});
    server.forget();
    const auto back =
        reports.wait_for([](const auto& r) { return r.target == 9U && r.initialized; });
    EXPECT_TRUE(back.ok());
    EXPECT_EQ(server.served(), 9U);
    const Acts acts = server.acts();
    EXPECT_EQ(Acts(acts.end() - 2, acts.end()), (Acts{"/wisp/init", "/wisp/update"}));
}

TEST(EngineDriver, RefusalsKeepTheirKindAndCause) {
    FakeVllm server;
    auto driver = value_of(EngineDriver::open(options_for({server.url()})));
    server.on("POST /wisp/update", [](const Json&) {
        return Reply{409, {{"error", {{"message", "step 5 \x1b[31mis corrupt"}}}}};
    });
    auto report = driver.update({5, ""})[0];
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error->kind, ErrorKind::kConflict);
    EXPECT_NE(report.error->text.find("step 5 \\x1b[31mis corrupt"), std::string::npos);
    EXPECT_FALSE(report.moved);
    server.on("POST /wisp/update",
              [](const Json&) { return Reply{503, {{"detail", "not staged within 5 s"}}}; });
    report = driver.update({6, ""})[0];
    EXPECT_EQ(report.error->kind, ErrorKind::kUnavailable);
    EXPECT_NE(report.error->text.find("not staged within 5 s"), std::string::npos);
    server.on("POST /wisp/update", [](const Json&) { return Reply{200, {{"served", 5}}}; });
    EXPECT_EQ(driver.update({7, ""})[0].error->kind, ErrorKind::kConflict);
}

TEST(EngineDriver, ServerOfAnotherRunIsLeftAlone) {
    FakeVllm server;
    (void)value_of(EngineDriver::open(options_for({server.url()}))).update({1, ""});
    auto options = options_for({server.url()});
    options.run = "s3://bucket/other";
    auto driver = value_of(EngineDriver::open(options));
    const auto report = driver.update({2, ""})[0];
    EXPECT_EQ(report.error->kind, ErrorKind::kConflict);
    EXPECT_NE(report.error->text.find("s3://bucket/run"), std::string::npos);
    EXPECT_EQ(report.served, 1U);
    EXPECT_EQ(server.acts().size(), 2U);
}

TEST(EngineDriver, PathsAreToldAsTheyAreFoundFromElsewhere) {
    FakeVllm server;
    auto options = options_for({server.url()});
    options.run = "some/./run";
    (void)value_of(EngineDriver::open(options)).update({1, ""});
    const auto told = server.bodies("/wisp/init").at(0).at("init_info").at("run");
    EXPECT_EQ(told, (std::filesystem::current_path() / "some/run").string());
}

TEST(EngineDriver, LookAsksAndMovesNothing) {
    FakeVllm server;
    auto driver = value_of(EngineDriver::open(options_for({server.url(), dead_url()})));
    const auto before = driver.look();
    EXPECT_TRUE(before[0].ok() && !before[0].served);
    EXPECT_FALSE(before[1].ok());
    EXPECT_TRUE(server.acts().empty());
    (void)driver.update({4, ""});
    EXPECT_EQ(driver.look()[0].served, 4U);
    EXPECT_EQ(driver.latest()[0].target, 4U);
}

TEST(EngineDriver, KeyGoesToTheServerAndNowhereElse) {
    FakeVllm server;
    FakeWeb elsewhere([](const httplib::Request&, httplib::Response&) {});
    FakeWeb redirecting([&](const httplib::Request&, httplib::Response& response) {
        response.status = 307;
        response.set_header("Location", elsewhere.url("localhost") + "/wisp/status");
    });
    auto options = options_for({server.url(), redirecting.url()});
    for (auto& each : options.servers) each.api_key = "hush";
    auto driver = value_of(EngineDriver::open(options));
    const auto reports = driver.update({1, ""});
    EXPECT_TRUE(reports[0].ok());
    for (const auto& request : server.web().requests()) {
        EXPECT_EQ(request.get_header_value("Authorization"), "Bearer hush");
    }
    ASSERT_FALSE(reports[1].ok());
    EXPECT_EQ(reports[1].error->kind, ErrorKind::kInvalid);
    EXPECT_NE(reports[1].error->text.find("server's own address"), std::string::npos);
    EXPECT_TRUE(elsewhere.requests().empty());
    EXPECT_EQ(reports[1].error->text.find("hush"), std::string::npos);
}

TEST(EngineDriver, ServerThatWantsAKeySaysSo) {
    FakeEngine server;
    server.on("GET /wisp/status",
              [](const Json&) { return Reply{401, {{"error", "Unauthorized"}}}; });
    auto driver = value_of(EngineDriver::open(options_for({server.url()})));
    const auto report = driver.update({1, ""})[0];
    EXPECT_EQ(report.error->kind, ErrorKind::kDenied);
    EXPECT_NE(report.error->text.find("--api-key"), std::string::npos);
}

TEST(EngineDriver, WrongServersAreToldApart) {
    FakeEngine other;
    FakeEngine plain;
    plain.on("GET /version", [](const Json&) { return Reply{200, {{"version", "0.32.0"}}}; });
    FakeEngine sglang;
    sglang.on("GET /model_info", [](const Json&) { return Reply{200, {{"model_path", "m"}}}; });
    auto driver =
        value_of(EngineDriver::open(options_for({other.url(), plain.url(), sglang.url()})));
    const auto reports = driver.update({1, ""});
    EXPECT_NE(reports[0].error->text.find("no vLLM server"), std::string::npos);
    EXPECT_NE(reports[1].error->text.find("--weight-transfer-config '{\"backend\":\"wisp\"}'"),
              std::string::npos);
    EXPECT_NE(reports[2].error->text.find("--sglang"), std::string::npos);
}

TEST(EngineDriver, AddressesThatAreNoneAreRefused) {
    for (const char* url :
         {"", "localhost:8000", "ftp://host", "http://user:pass@host/", "http://host/?a=b"}) {
        EXPECT_EQ(outcome_of(EngineDriver::open(options_for({url}))), "invalid") << url;
    }
    EXPECT_EQ(outcome_of(EngineDriver::open(options_for({}))), "invalid");
    const auto twice = EngineDriver::open(options_for({"http://host:1", "http://host:1/"}));
    EXPECT_NE(text_of(twice).find("twice"), std::string::npos);
}

TEST(EngineDriver, OutlivesAListenerThatThrows) {
    FakeVllm server;
    auto options = options_for({server.url()});
    options.on_report = [](const EngineReport&) { throw std::runtime_error("of the listener"); };
    auto driver = value_of(EngineDriver::open(options));
    EXPECT_TRUE(driver.update({1, ""})[0].ok());
    EXPECT_TRUE(driver.update({2, ""})[0].ok());
}

TEST(EngineDriver, WhoIsToldToStopDoesNotWaitForAServer) {
    Gate gate;
    FakeVllm server;
    std::stop_source source;
    server.on("POST /wisp/update", [&](const Json&) {
        source.request_stop();
        gate.wait();
        return Reply{};
    });
    auto options = options_for({server.url()});
    options.update_timeout = Milliseconds(600'000);
    {
        auto driver = value_of(EngineDriver::open(options));
        const StopScope scope(source.get_token());
        const EngineReport report = driver.update({1, ""})[0];
        ASSERT_FALSE(report.ok());
        EXPECT_EQ(report.error->kind, ErrorKind::kUnavailable);
    }
    gate.open();
}

TEST(EngineDriver, EndsWhileAServerIsSilentAndTellsNoFault) {
    Gate gate;
    FakeVllm server;
    Gate asked;
    server.on("POST /wisp/update", [&](const Json&) {
        asked.open();
        gate.wait();
        return Reply{};
    });
    auto options = options_for({server.url()});
    options.update_timeout = Milliseconds(600'000);
    int told = 0;
    options.on_report = [&](const EngineReport&) { ++told; };
    {
        auto driver = value_of(EngineDriver::open(options));
        driver.aim({1, ""});
        asked.wait();
    }
    EXPECT_EQ(told, 0);
    gate.open();
}

}  // namespace
}  // namespace wisp::testing
