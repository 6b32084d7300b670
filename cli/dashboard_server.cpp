#include "dashboard_server.hpp"

#include <fmt/format.h>
#include <httplib.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <chrono>
#include <memory>
#include <thread>

#include "dashboard_page.hpp"
#include "listening.hpp"
#include "process_stop.hpp"

namespace wisp::cli {
namespace {

constexpr std::size_t kThreads = 8;
constexpr auto kLookout = std::chrono::milliseconds(100);
constexpr std::size_t kMostRequestBytes = 64 * 1024;

int status_of(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::kInvalid: return 400;
        case ErrorKind::kNotFound:
        case ErrorKind::kGap:
        case ErrorKind::kNoRun: return 404;
        case ErrorKind::kUnavailable: return 503;
        default: return 502;
    }
}

/// As it is. What is given to set_content() is compressed for every browser, by brotli at its
/// slowest: 0.8 s of a core for the page, and as much again for 500 commits.
void send(httplib::Response& response, std::string_view bytes, const char* type,
          std::shared_ptr<const std::string> owner = nullptr) {
    response.set_content_provider(
        bytes.size(), type,
        [bytes, owner = std::move(owner)](std::size_t offset, std::size_t length,
                                          httplib::DataSink& sink) {
            return sink.write(bytes.data() + offset, length);
        });
}

void answer(httplib::Response& response, const Result<Json>& result) {
    Json json;
    if (result) {
        json = *result;
    } else {
        response.status = status_of(result.error().kind);
        json = {{"error", name_of(result.error().kind)}, {"message", result.error().text}};
    }
    const auto text = std::make_shared<const std::string>(
        json.dump(-1, ' ', false, Json::error_handler_t::replace));
    send(response, *text, "application/json", text);
}

Result<std::uint64_t> number_from(const std::string& text) {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stopped == end) return value;
    return fail(ErrorKind::kInvalid, fmt::format("'{}' is not a number", printable(text)));
}

/// 0 when the parameter is not given.
Result<std::uint64_t> parameter(const httplib::Request& request, const char* name) {
    if (!request.has_param(name)) return 0;
    return number_from(request.get_param_value(name));
}

/// The name in a Host header, without its port.
std::string host_name(const std::string& header) {
    if (header.starts_with('[')) return header.substr(0, header.find(']') + 1);
    return header.substr(0, header.find(':'));
}

/// What is asked of a run, with the number that the question carries.
using Ask = Result<Json> (*)(RunView&, std::uint64_t);

RunView* run_of(const WatchedRuns& runs, const httplib::Request& request) {
    const auto id = number_from(request.matches[1].str());
    return id ? runs.find(*id) : nullptr;
}

/// `number` finds the number of the question in a request.
template <class Number>
httplib::Server::Handler handler(WatchedRuns& runs, Number number, Ask ask) {
    return [&runs, number, ask](const httplib::Request& request, httplib::Response& response) {
        RunView* const view = run_of(runs, request);
        if (view == nullptr) {
            answer(response, fail(ErrorKind::kNotFound, "this dashboard shows no such run"));
            return;
        }
        const Result<std::uint64_t> value = number(request);
        answer(response, value ? ask(*view, *value) : std::unexpected(value.error()));
    };
}

void add_routes(httplib::Server& server, WatchedRuns& runs) {
    const auto none = [](const httplib::Request&) -> Result<std::uint64_t> { return 0; };
    const auto given = [](const char* name) {
        return [name](const httplib::Request& request) { return parameter(request, name); };
    };
    const auto seq = [](const httplib::Request& request) {
        return number_from(request.matches[2].str());
    };
    server.Get("/", [](const httplib::Request&, httplib::Response& response) {
        send(response, dashboard_page(), "text/html; charset=utf-8");
    });
    server.Get("/api/runs", [&runs](const httplib::Request&, httplib::Response& response) {
        answer(response, runs.overview());
    });
    const std::string run = R"(/api/runs/(\d{1,6}))";
    server.Get(run + "/run", handler(runs, none, [](auto& view, auto) { return view.run(); }));
    server.Get(run + "/head", handler(runs, none, [](auto& view, auto) { return view.head(); }));
    server.Get(run + "/commits", handler(runs, given("after"), [](auto& view, auto after) {
                   return view.commits(after);
               }));
    server.Get(run + "/beats", handler(runs, given("after"), [](auto& view, auto after) {
                   return view.beats(static_cast<std::int64_t>(after));
               }));
    server.Get(run + "/layers", handler(runs, given("cursor"), [](auto& view, auto cursor) {
                   return view.layers(cursor);
               }));
    server.Get(run + R"(/commits/(\d{1,20}))",
               handler(runs, seq, [](auto& view, auto at) { return view.step(at); }));
    server.Get(run + R"(/commits/(\d{1,20})/exponents)",
               handler(runs, seq, [](auto& view, auto at) { return view.exponents(at); }));
}

/// Another site's script can make a browser ask us under a name of its own that leads here; it
/// cannot make it send our name.
void guard(httplib::Server& server, const std::string& host) {
    server.set_default_headers(
        {{"Content-Security-Policy",
          "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
          "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'"},
         {"X-Content-Type-Options", "nosniff"},
         {"Referrer-Policy", "no-referrer"},
         {"Cache-Control", "no-store"}});
    server.set_payload_max_length(kMostRequestBytes);
    if (!is_loopback(host)) return;
    server.set_pre_routing_handler(
        [host](const httplib::Request& request, httplib::Response& response) {
            const std::string name = host_name(request.get_header_value("Host"));
            if (name == host || is_loopback(name)) {
                return httplib::Server::HandlerResponse::Unhandled;
            }
            response.status = 403;
            response.set_content("wisp dashboard answers to its own address only\n", "text/plain");
            return httplib::Server::HandlerResponse::Handled;
        });
}

}  // namespace

bool is_loopback(const std::string& host) {
    if (host == "localhost" || host == "::1" || host == "[::1]") return true;
    // An address, not a name that looks like one: the owner of 127.example could have it lead here.
    in_addr address{};
    return ::inet_pton(AF_INET, host.c_str(), &address) == 1 &&
           ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
}

Result<void> serve_dashboard(WatchedRuns& runs, const Listening& at,
                             const std::function<void(int)>& on_ready) {
    httplib::Server server;
    server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    guard(server, at.host);
    add_routes(server, runs);
    const auto port = listen_alone(server, at.host, at.port);
    if (!port) {
        return fail(
            port.error().kind,
            printable(port.error().text) +
                "; choose another with --port or --host, or any that is free with --port 0");
    }
    on_ready(*port);
    std::jthread lookout([&](const std::stop_token& ended) {
        while (!ended.stop_requested() && !interrupted()) std::this_thread::sleep_for(kLookout);
        server.stop();
    });
    server.listen_after_bind();
    return {};
}

}  // namespace wisp::cli
