// Servers as vLLM and SGLang show themselves over HTTP, with what they were asked and in which
// order. Real HTTP, no weights.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "store/fake_web.hpp"

namespace wisp::testing {

/// A server that answers by the routes it is given; others are 404.
class FakeEngine {
  public:
    using Json = nlohmann::json;
    struct Reply {
        int status = 200;
        Json body = Json::object();
    };
    using Route = std::function<Reply(const Json& body)>;

    FakeEngine() : web_(std::make_unique<FakeWeb>(answer())) {}

    std::string url() const { return web_->url(); }
    int port() const { return web_->port(); }
    const FakeWeb& web() const { return *web_; }
    /// "GET /wisp/status"; replaces what was there.
    void on(const std::string& route, Route reply) {
        const std::scoped_lock lock(mutex_);
        routes_[route] = std::move(reply);
    }
    /// Every call but those that only look, in order.
    std::vector<std::string> acts() const {
        std::vector<std::string> found;
        for (const auto& request : web_->requests()) {
            if (request.method == "POST") found.push_back(request.target);
        }
        return found;
    }
    std::vector<Json> bodies(const std::string& target) const {
        std::vector<Json> found;
        for (const auto& request : web_->requests()) {
            if (request.target == target) found.push_back(Json::parse(request.body));
        }
        return found;
    }

  private:
    FakeWeb::Answer answer() {
        return [this](const httplib::Request& request, httplib::Response& response) {
            Route route;
            {
                const std::scoped_lock lock(mutex_);
                const auto at = routes_.find(request.method + " " + request.path);
                if (at != routes_.end()) route = at->second;
            }
            Reply reply{404, {{"detail", "Not Found"}}};
            if (route) reply = route(Json::parse(request.body, nullptr, false));
            response.status = reply.status;
            response.set_content(reply.body.dump(), "application/json");
        };
    }

    std::mutex mutex_;
    std::map<std::string, Route> routes_;
    std::unique_ptr<FakeWeb> web_;
};

/// A vLLM server with wisp's routes.
class FakeVllm : public FakeEngine {
  public:
    FakeVllm() {
        on("GET /wisp/status", [this](const Json&) { return Reply{200, status()}; });
        on("POST /wisp/init", [this](const Json& body) {
            const std::scoped_lock lock(state_);
            run_ = body.at("init_info").at("run");
            initialized_ = true;
            return Reply{};
        });
        on("POST /wisp/update", [this](const Json& body) {
            const std::scoped_lock lock(state_);
            served_ = body.at("step").get<std::uint64_t>();
            return Reply{200,
                         {{"served", *served_},
                          {"pause_seconds", 0.004},
                          {"phases", {{"staged", 0.5}, {"applied", 0.003}}}}};
        });
    }
    /// As a process that was started anew.
    void forget() {
        const std::scoped_lock lock(state_);
        served_.reset();
        initialized_ = false;
        run_ = nullptr;
    }
    std::optional<std::uint64_t> served() const {
        const std::scoped_lock lock(state_);
        return served_;
    }

  private:
    Json status() const {
        const std::scoped_lock lock(state_);
        return {{"run", run_},
                {"mode", "push"},
                {"initialized", initialized_},
                {"served", served_ ? Json(*served_) : Json()},
                {"faults", Json::array()}};
    }

    mutable std::mutex state_;
    Json run_;
    bool initialized_ = false;
    std::optional<std::uint64_t> served_;
};

/// A vLLM server that only has vLLM's own routes.
class FakeStockVllm : public FakeEngine {
  public:
    FakeStockVllm() {
        on("GET /weight_info",
           [this](const Json&) { return Reply{200, {{"weight_version", version_}}}; });
        for (const char* path : {"/pause", "/init_weight_transfer_engine", "/start_weight_update",
                                 "/update_weights", "/resume"}) {
            on(std::string("POST ") + path, [](const Json&) { return Reply{}; });
        }
        on("POST /finish_weight_update", [this](const Json& body) {
            if (body.contains("weight_version")) version_ = body.at("weight_version");
            return Reply{};
        });
    }

  private:
    std::string version_ = "default";
};

/// Holds the threads that wait until it is opened; a test that ends opens it.
class Gate {
  public:
    ~Gate() { open(); }
    void open() {
        const std::scoped_lock lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return open_; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
};

}  // namespace wisp::testing
