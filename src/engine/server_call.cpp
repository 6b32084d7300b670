#include "engine/server_call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "base/try.hpp"
#include "wisp/result.hpp"

namespace wisp {
namespace {

constexpr std::uint64_t kAnswerBytes = 4 * 1024 * 1024;  // SGLang tells its whole configuration
constexpr std::size_t kCauseBytes = 1000;
constexpr int kResumeAttempts = 3;

const nlohmann::json kNothing;

std::string text_in(const nlohmann::json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_object()) return {};
    const auto message = value.find("message");
    return message != value.end() && message->is_string() ? message->get<std::string>() : "";
}

std::string json_text(const nlohmann::json& body) {
    return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// `text` must outlive the request.
HttpRequest json_post(const std::string& text) {
    HttpRequest request;
    request.method = "POST";
    request.headers = {{"Content-Type", "application/json"}};
    request.body = as_bytes(text);
    return request;
}

}  // namespace

const nlohmann::json& ServerAnswer::field(const char* name) const {
    if (!body.is_object()) return kNothing;
    const auto at = body.find(name);
    return at == body.end() ? kNothing : *at;
}

std::string ServerAnswer::cause() const {
    // vLLM nests a message, FastAPI says "detail", SGLang "message".
    for (const char* name : {"error", "detail", "message"}) {
        const std::string text = text_in(field(name));
        if (!text.empty()) return printable(std::string_view(text).substr(0, kCauseBytes));
    }
    return {};
}

ServerCall::ServerCall(std::shared_ptr<HttpClient> http, const Url& base, std::string api_key,
                       Milliseconds connect_timeout, ServerSignals& signals)
    : http_(std::move(http)),
      label_(base.origin() + base.path),
      api_key_(std::move(api_key)),
      on_this_machine_(is_loopback(base.host)),
      connect_timeout_(connect_timeout),
      signals_(&signals) {
    while (label_.ends_with('/')) label_.pop_back();
}

Result<ServerAnswer> ServerCall::ask(HttpRequest request, const std::string& path,
                                     Milliseconds timeout) const {
    request.url = label_ + path;
    if (!api_key_.empty()) request.headers.emplace_back("Authorization", "Bearer " + api_key_);
    request.answer_limit = kAnswerBytes;
    request.connect_timeout = std::min(connect_timeout_, timeout);
    request.stall_timeout = timeout;
    request.total_timeout = timeout;
    request.without_proxy = on_this_machine_;
    WISP_ASSIGN(const HttpResponse response, http_->perform(request));
    signals_->heard = true;
    if (response.status >= 300 && response.status < 400) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("{}: redirects to {}, which is not followed; give the server's own "
                                "address",
                                label_, shown(response.header("location"))));
    }
    ServerAnswer answer;
    answer.status = response.status;
    answer.body = nlohmann::json::parse(response.body_text(), nullptr, false);
    if (answer.body.is_discarded()) answer.body = nullptr;
    if (answer.status == 401 || answer.status == 403) {
        // 401 is about the key; a server that forbids something says itself what it takes.
        std::string cure = answer.status == 403 ? answer.cause() : std::string();
        if (cure.empty()) {
            cure = api_key_.empty() ? "give the key that the server was started with (--api-key)"
                                    : "the key given is not the server's";
        }
        return fail(ErrorKind::kDenied, fmt::format("{}: {} was refused with {}; {}", label_, path,
                                                    answer.status, cure));
    }
    return answer;
}

Result<ServerAnswer> ServerCall::get(const std::string& path, Milliseconds timeout) const {
    HttpRequest request;
    request.ended = &signals_->ended;
    return ask(std::move(request), path, timeout);
}

Result<ServerAnswer> ServerCall::post(const std::string& path, const nlohmann::json& body,
                                      Milliseconds timeout) const {
    const std::string text = json_text(body);
    HttpRequest request = json_post(text);
    request.ended = &signals_->ended;
    return ask(std::move(request), path, timeout);
}

Result<ServerAnswer> ServerCall::post_surely(const std::string& path, const nlohmann::json& body,
                                             Milliseconds timeout) const {
    const std::string text = json_text(body);
    HttpRequest request = json_post(text);
    request.despite_stop = true;
    return ask(std::move(request), path, timeout);
}

Error server_error(ErrorKind kind, const ServerCall& server, const std::string& what,
                   const ServerAnswer& answer, std::string_view cure) {
    const std::string cause = answer.cause();
    return {kind, fmt::format("{}: {}: it answered {}{}{}; {}", server.label(), what, answer.status,
                              cause.empty() ? "" : ": ", cause, cure)};
}

Result<void> resumed_after(Result<void> done, const ServerCall& server, const std::string& path,
                           const nlohmann::json& body, Milliseconds timeout) {
    Result<ServerAnswer> answer;
    for (int attempt = 0; attempt < kResumeAttempts; ++attempt) {
        answer = server.post_surely(path, body, timeout);
        if (answer && answer->ok()) return done;
    }
    const std::string cure =
        fmt::format("if it lives, it may still be paused: POST {}{}", server.label(), path);
    Error failure =
        answer ? server_error(ErrorKind::kUnavailable, server, path, *answer, cure)
               : Error{ErrorKind::kUnavailable, fmt::format("{}; {}", answer.error().text, cure)};
    if (!done) failure = {done.error().kind, done.error().text + "; " + failure.text};
    return std::unexpected(std::move(failure));
}

}  // namespace wisp
