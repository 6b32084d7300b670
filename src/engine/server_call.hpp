// One server of an engine as HTTP sees it: JSON in, JSON out, a time-out on everything.
//
// A token goes to this server alone: redirects are not followed, and no other address is asked.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "web/http_client.hpp"
#include "web/http_url.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct ServerAnswer {
    long status = 0;
    nlohmann::json body;  // null when it was no JSON

    bool ok() const { return status >= 200 && status < 300; }
    bool missing() const { return status == 404 || status == 405; }
    /// What it says went wrong, made printable; empty when it says nothing.
    std::string cause() const;
    /// A field of the body, null when there is none.
    const nlohmann::json& field(const char* name) const;
};

/// Between a server's exchanges and the thread that watches over them.
struct ServerSignals {
    std::atomic<bool> ended{false};  // ends exchanges under way, but those of post_surely()
    std::atomic<bool> heard{false};  // set by every answer
};

class ServerCall {
  public:
    /// `signals` must outlive it.
    ServerCall(std::shared_ptr<HttpClient> http, const Url& base, std::string api_key,
               Milliseconds connect_timeout, ServerSignals& signals);

    /// For messages.
    const std::string& label() const { return label_; }
    bool is_ended() const { return signals_->ended; }
    /// Any answer but a redirect (kInvalid) and one that asks for a key (kDenied).
    Result<ServerAnswer> get(const std::string& path, Milliseconds timeout) const;
    Result<ServerAnswer> post(const std::string& path, const nlohmann::json& body,
                              Milliseconds timeout) const;
    /// As post(), also when everything else was asked to end.
    Result<ServerAnswer> post_surely(const std::string& path, const nlohmann::json& body,
                                     Milliseconds timeout) const;

  private:
    Result<ServerAnswer> ask(HttpRequest request, const std::string& path,
                             Milliseconds timeout) const;
    std::shared_ptr<HttpClient> http_;
    std::string label_;
    std::string api_key_;
    bool on_this_machine_ = false;
    Milliseconds connect_timeout_;
    ServerSignals* signals_;
};

/// What failed on which server, what it said, and the cure.
Error server_error(ErrorKind kind, const ServerCall& server, const std::string& what,
                   const ServerAnswer& answer, std::string_view cure);

/// A server that was paused goes on, whatever became of what it was paused for: `done`, once it has
/// answered that it does; with both failures if it does not.
Result<void> resumed_after(Result<void> done, const ServerCall& server, const std::string& path,
                           const nlohmann::json& body, Milliseconds timeout);

}  // namespace wisp
