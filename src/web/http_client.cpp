#include "web/http_client.hpp"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/text.hpp"
#include "base/transfer_tally.hpp"
#include "web/ca_bundle.hpp"
#include "web/http_limits.hpp"
#include "web/http_url.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

void start_curl_once() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

constexpr int kStopLookMs = 50;  // how often an idle exchange looks whether it is to end

/// A request, and beside it the open connections: libcurl keeps them there.
struct Handle {
    CURL* curl = curl_easy_init();
    CURLM* connections = curl_multi_init();
    Handle() = default;
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() {
        curl_easy_cleanup(curl);
        curl_multi_cleanup(connections);
    }
    bool is_whole() const { return curl != nullptr && connections != nullptr; }
};

struct HeaderList {
    curl_slist* list = nullptr;
    bool is_whole = true;
    HeaderList() = default;
    HeaderList(const HeaderList&) = delete;
    HeaderList& operator=(const HeaderList&) = delete;
    ~HeaderList() { curl_slist_free_all(list); }
    void add(const std::string& line) {
        curl_slist* longer = curl_slist_append(list, line.c_str());
        is_whole = is_whole && longer != nullptr;
        if (longer != nullptr) list = longer;
    }
};

Error out_of_memory() {
    return {ErrorKind::kUnavailable, "out of memory for a request; try again later"};
}

/// What the callbacks of one exchange share.
struct Exchange {
    const HttpRequest* request = nullptr;
    CURL* curl = nullptr;
    HttpResponse response;
    std::uint64_t header_bytes = 0;
    std::uint64_t answer_limit = 0;
    bool too_long = false;
    bool sent = false;
    bool sent_again = false;
    std::int64_t told_moved = 0;
};

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return out;
}

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::size_t on_header(char* data, std::size_t one, std::size_t count, void* user) {
    auto& exchange = *static_cast<Exchange*>(user);
    const std::string_view line(data, one * count);
    exchange.header_bytes += line.size();
    if (exchange.header_bytes > limits::kHttpHeaderBytes) {
        exchange.too_long = true;
        return 0;
    }
    // A status line starts a new answer: what came before was "100 Continue" or a proxy speaking.
    if (line.starts_with("HTTP/")) {
        exchange.response.headers.clear();
        return line.size();
    }
    if (const auto colon = line.find(':'); colon != std::string_view::npos) {
        exchange.response.headers.emplace_back(lower(trimmed(line.substr(0, colon))),
                                               std::string(trimmed(line.substr(colon + 1))));
    }
    return line.size();
}

std::size_t on_body(char* data, std::size_t one, std::size_t count, void* user) {
    auto& exchange = *static_cast<Exchange*>(user);
    const std::size_t size = one * count;
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    long status = 0;
    curl_easy_getinfo(exchange.curl, CURLINFO_RESPONSE_CODE, &status);
    HttpResponse& response = exchange.response;
    const std::span<std::byte> into = exchange.request->into;
    if (!into.empty() && (status == 200 || status == 206)) {
        if (size > into.size() - response.into_bytes) {
            exchange.too_long = true;
            return 0;
        }
        std::memcpy(into.data() + response.into_bytes, bytes, size);
        response.into_bytes += size;
        return size;
    }
    if (size > exchange.answer_limit - response.body.size()) {
        exchange.too_long = true;
        return 0;
    }
    response.body.insert(response.body.end(), bytes, bytes + size);
    return size;
}

bool is_to_end(const Exchange& exchange) {
    const HttpRequest& request = *exchange.request;
    const bool ended = request.ended != nullptr && request.ended->load();
    return ended || (!request.despite_stop && stopped());
}

/// Only bodies count: what was asked to be moved. Called by libcurl, through which nothing that a
/// caller's own code throws may unwind; what it is told is advice, so that nothing is lost.
void tell_moved(Exchange& exchange, std::int64_t bytes) noexcept {
    if (bytes == exchange.told_moved) return;
    const std::int64_t more = bytes - std::exchange(exchange.told_moved, bytes);
    try {
        TransferScope::moved(more);
    } catch (...) {
    }
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t sent) {
    auto& exchange = *static_cast<Exchange*>(user);
    tell_moved(exchange, sent + static_cast<std::int64_t>(exchange.response.into_bytes));
    return is_to_end(exchange) ? 1 : 0;
}

/// Asked on each connection that the request is about to be written to.
int on_send(void* user, char*, char*, int, int) {
    auto& exchange = *static_cast<Exchange*>(user);
    exchange.sent_again = exchange.sent;
    exchange.sent = true;
    const bool refused = exchange.sent_again && exchange.request->send_once;
    return refused ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

template <class T>
void set(CURL* curl, CURLoption option, T value) {
    curl_easy_setopt(curl, option, value);
}

void set_method(CURL* curl, const HttpRequest& request) {
    const bool carries_body =
        request.method == "PUT" || request.method == "POST" || !request.body.empty();
    if (request.method == "HEAD") {
        set(curl, CURLOPT_NOBODY, 1L);
    } else if (carries_body) {
        // The body is sent from where it lies, and again from its start on a fresh connection when
        // a kept one turns out to be dead.
        set(curl, CURLOPT_POST, 1L);
        set(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
        set(curl, CURLOPT_POSTFIELDS,
            request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
    } else {
        set(curl, CURLOPT_HTTPGET, 1L);
    }
    if (request.method != "HEAD") set(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

std::uint64_t answer_limit(const HttpRequest& request) {
    return request.answer_limit != 0 ? request.answer_limit : limits::kHttpAnswerBytes;
}

/// A transfer that trickles must end: no exchange takes longer than its bytes would at the slowest
/// speed there may be, and the patience with a silent server, once to begin and once to end.
Milliseconds longest(const HttpRequest& request) {
    if (request.total_timeout.count() != 0) return request.total_timeout;
    // Only where an answer is asked for may it be long.
    const bool unknown = request.method == "GET" && request.into.empty();
    const std::uint64_t answer = unknown ? answer_limit(request) : request.into.size();
    const std::uint64_t bytes = request.body.size() + answer + limits::kHttpHeaderBytes;
    return request.connect_timeout + 2 * request.stall_timeout +
           Milliseconds(bytes * 1000 / limits::kSlowestBytesPerSecond);
}

void configure(CURL* curl, Exchange& exchange, const std::string& ca_bundle, char* problem) {
    const HttpRequest& request = *exchange.request;
    set(curl, CURLOPT_ERRORBUFFER, problem);
    set(curl, CURLOPT_URL, request.url.c_str());
    set(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    set(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(curl, CURLOPT_PATH_AS_IS, 1L);
    set(curl, CURLOPT_FOLLOWLOCATION, 0L);
    set(curl, CURLOPT_NOSIGNAL, 1L);
    set(curl, CURLOPT_USERAGENT, "wisp");
    set(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    set(curl, CURLOPT_BUFFERSIZE, 256L * 1024);
    set(curl, CURLOPT_UPLOAD_BUFFERSIZE, 256L * 1024);
    set(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    set(curl, CURLOPT_SSL_VERIFYHOST, 2L);
    set(curl, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    if (!ca_bundle.empty()) set(curl, CURLOPT_CAINFO, ca_bundle.c_str());
    if (request.without_proxy) set(curl, CURLOPT_NOPROXY, "*");
#if LIBCURL_VERSION_NUM >= 0x075700
    // A caller that gives up on an exchange does not wait for a server's name to be resolved.
    set(curl, CURLOPT_QUICK_EXIT, 1L);
#endif
    set(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_timeout.count()));
    set(curl, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(limits::kSlowestBytesPerSecond));
    set(curl, CURLOPT_LOW_SPEED_TIME,
        static_cast<long>((request.stall_timeout.count() + 999) / 1000));
    set(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(longest(request).count()));
    set(curl, CURLOPT_HEADERFUNCTION, &on_header);
    set(curl, CURLOPT_HEADERDATA, &exchange);
    set(curl, CURLOPT_WRITEFUNCTION, &on_body);
    set(curl, CURLOPT_WRITEDATA, &exchange);
    set(curl, CURLOPT_NOPROGRESS, 0L);
    set(curl, CURLOPT_XFERINFOFUNCTION, &on_progress);
    set(curl, CURLOPT_XFERINFODATA, &exchange);
    set(curl, CURLOPT_PREREQFUNCTION, &on_send);
    set(curl, CURLOPT_PREREQDATA, &exchange);
    set_method(curl, request);
}

/// As curl_easy_perform(), which looks for an end only once a second when nothing moves.
CURLcode run_exchange(Handle& handle, Exchange& exchange) {
    if (curl_multi_add_handle(handle.connections, handle.curl) != CURLM_OK) {
        return CURLE_OUT_OF_MEMORY;
    }
    CURLcode code = CURLE_OK;
    for (int running = 1; running != 0;) {
        const CURLMcode problem = curl_multi_perform(handle.connections, &running);
        if (problem != CURLM_OK) {
            code = problem == CURLM_OUT_OF_MEMORY ? CURLE_OUT_OF_MEMORY : CURLE_FAILED_INIT;
            break;
        }
        if (running == 0) break;
        if (is_to_end(exchange)) {
            code = CURLE_ABORTED_BY_CALLBACK;
            break;
        }
        curl_multi_poll(handle.connections, nullptr, 0, kStopLookMs, nullptr);
    }
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(handle.connections, &left)) {
        if (message->msg == CURLMSG_DONE) code = message->data.result;
    }
    curl_multi_remove_handle(handle.connections, handle.curl);
    return code;
}

Error transport_error(CURLcode code, const Exchange& exchange, const char* problem,
                      const std::string& ca_setting) {
    const HttpRequest& request = *exchange.request;
    const auto url = parse_url(request.url);
    const std::string where = url ? url->origin() : "the server";
    const std::string why = problem[0] != '\0' ? problem : curl_easy_strerror(code);
    if (exchange.too_long) {
        return {ErrorKind::kCorrupt,
                fmt::format("{} {}: the answer is longer than it may be; the transfer was ended",
                            request.method, where)};
    }
    if (code == CURLE_ABORTED_BY_CALLBACK && exchange.sent_again) {
        return {ErrorKind::kUnavailable,
                fmt::format("{} {}: the connection died before the answer; look whether it was "
                            "done, or try again",
                            request.method, where)};
    }
    if (code == CURLE_ABORTED_BY_CALLBACK) {
        return {ErrorKind::kUnavailable, "stopped as asked, with a request under way"};
    }
    if (code == CURLE_OUT_OF_MEMORY) return out_of_memory();
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
        return {
            ErrorKind::kDenied,
            fmt::format("{} {}: its certificate is not trusted ({}); {} names a file of trusted "
                        "certificates",
                        request.method, where, shown(why), ca_setting)};
    }
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
        return {ErrorKind::kInvalid, fmt::format("{} {}: {}", request.method, where, shown(why))};
    }
    return {ErrorKind::kUnavailable,
            fmt::format("{} {}: {}; check that the address is right and can be reached",
                        request.method, where, shown(why))};
}

}  // namespace

std::string_view HttpResponse::header(std::string_view name) const {
    const auto at = std::ranges::find(headers, name, &std::pair<std::string, std::string>::first);
    return at == headers.end() ? std::string_view() : std::string_view(at->second);
}

class HttpClient::Pool {
  public:
    /// Null when there is no memory for one.
    std::unique_ptr<Handle> take() {
        const std::lock_guard lock(mutex_);
        if (idle_.empty()) {
            auto fresh = std::make_unique<Handle>();
            return fresh->is_whole() ? std::move(fresh) : nullptr;
        }
        auto handle = std::move(idle_.back());
        idle_.pop_back();
        return handle;
    }
    void give_back(std::unique_ptr<Handle> handle) {
        // Forgets pointers into the finished exchange, and keeps the connection.
        curl_easy_reset(handle->curl);
        const std::lock_guard lock(mutex_);
        if (idle_.size() < kIdleHandles) idle_.push_back(std::move(handle));
    }

  private:
    static constexpr std::size_t kIdleHandles = 32;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Handle>> idle_;
};

HttpClient::HttpClient(std::string ca_bundle, std::string ca_setting)
    : ca_bundle_(ca_bundle.empty() ? find_ca_bundle() : std::move(ca_bundle)),
      ca_setting_(std::move(ca_setting)) {
    start_curl_once();
    pool_ = std::make_unique<Pool>();
}

HttpClient::~HttpClient() = default;

Result<HttpResponse> HttpClient::perform(const HttpRequest& request) {
    HeaderList headers;
    headers.add("Expect:");
    bool typed = false;
    for (const auto& [name, value] : request.headers) {
        if ((name + value).find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("the header {} holds a line break", shown(name)));
        }
        typed = typed || lower(name) == "content-type";
        // libcurl takes "Name:" as the wish to leave the header out, and "Name;" as an empty one.
        headers.add(value.empty() ? name + ";" : name + ": " + value);
    }
    if (!typed) headers.add("Content-Type:");

    auto handle = pool_->take();
    if (!handle || !headers.is_whole) return std::unexpected(out_of_memory());
    char problem[CURL_ERROR_SIZE] = "";
    Exchange exchange;
    exchange.request = &request;
    exchange.curl = handle->curl;
    exchange.answer_limit = answer_limit(request);
    configure(handle->curl, exchange, ca_bundle_, problem);
    set(handle->curl, CURLOPT_HTTPHEADER, headers.list);
    const CURLcode code = run_exchange(*handle, exchange);
    curl_easy_getinfo(handle->curl, CURLINFO_RESPONSE_CODE, &exchange.response.status);
    pool_->give_back(std::move(handle));
    // What was refused moves again, if somebody tries again.
    if (code != CURLE_OK || exchange.response.status >= 300) tell_moved(exchange, 0);
    if (code != CURLE_OK) {
        return std::unexpected(transport_error(code, exchange, problem, ca_setting_));
    }
    return std::move(exchange.response);
}

}  // namespace wisp
