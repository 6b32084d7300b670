// A web server on loopback whose answers a test writes itself, and a clock that a test sets.
#pragma once

#include <httplib.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "store/s3/aws_profile.hpp"
#include "wisp/control.hpp"

namespace wisp::testing {

/// Every request goes to one function; what was asked can be looked at afterwards.
class FakeWeb {
  public:
    using Answer = std::function<void(const httplib::Request&, httplib::Response&)>;

    explicit FakeWeb(Answer answer, std::unique_ptr<httplib::Server> server = nullptr)
        : server_(server ? std::move(server) : std::make_unique<httplib::Server>()) {
        server_->set_keep_alive_timeout(1);
        server_->set_tcp_nodelay(true);
        server_->set_pre_routing_handler(
            [this, answer](const httplib::Request& request, httplib::Response& response) {
                // The body is not read yet here; routes below see it.
                const bool has_body = request.method == "PUT" || request.method == "POST";
                if (has_body) return httplib::Server::HandlerResponse::Unhandled;
                // Left alone, httplib would cut the answer to the range itself.
                const_cast<httplib::Request&>(request).ranges.clear();
                note(request);
                answer(request, response);
                return httplib::Server::HandlerResponse::Handled;
            });
        const auto with_body = [this, answer](const httplib::Request& request,
                                              httplib::Response& response) {
            note(request);
            answer(request, response);
        };
        server_->Put(".*", with_body);
        server_->Post(".*", with_body);
        port_ = server_->bind_to_any_port("127.0.0.1");
        thread_ = std::jthread([this] { server_->listen_after_bind(); });
        while (!server_->is_running()) std::this_thread::yield();
    }
    ~FakeWeb() { server_->stop(); }

    std::string url(const std::string& host = "127.0.0.1") const {
        return "http://" + host + ":" + std::to_string(port_);
    }
    int port() const { return port_; }
    std::vector<httplib::Request> requests() const {
        const std::lock_guard lock(mutex_);
        return requests_;
    }

  private:
    void note(const httplib::Request& request) {
        const std::lock_guard lock(mutex_);
        httplib::Request kept;
        kept.method = request.method;
        kept.path = request.path;
        kept.target = request.target;
        kept.headers = request.headers;
        kept.params = request.params;
        kept.body = request.body;
        requests_.push_back(std::move(kept));
    }
    std::unique_ptr<httplib::Server> server_;
    mutable std::mutex mutex_;
    std::vector<httplib::Request> requests_;
    int port_ = 0;
    std::jthread thread_;
};

class SetClock : public Clock {
  public:
    explicit SetClock(std::int64_t now_ms) : now_ms_(now_ms) {}
    std::int64_t now_ms() override { return now_ms_; }
    void sleep_for(Milliseconds duration) override { now_ms_ += duration.count(); }
    void set(std::int64_t now_ms) { now_ms_ = now_ms; }

  private:
    std::atomic<std::int64_t> now_ms_;
};

/// An environment of its own; the process's is not looked at.
inline Environment environment_of(std::map<std::string, std::string> variables) {
    return [variables = std::move(variables)](const char* name) -> std::string {
        const auto at = variables.find(name);
        return at == variables.end() ? std::string() : at->second;
    };
}

}  // namespace wisp::testing
