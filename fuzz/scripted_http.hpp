// A web of answers that the fuzz input wrote, without a network.
//
// The input reads like what travels: a status, headers, an empty line, the body. A line "%%" parts
// one answer from the next; one request more than was written finds nobody there.
#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/decimal.hpp"
#include "fuzz_input.hpp"
#include "web/http_client.hpp"
#include "web/http_url.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp::fuzz {

/// What stands before `mark`, which is taken off with it; all of it when there is no mark.
inline std::string_view cut(std::string_view& rest, std::string_view mark) {
    const auto at = rest.find(mark);
    const std::string_view piece = rest.substr(0, at);
    rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + mark.size());
    return piece;
}

/// Every message may be printed as it is.
inline void check_error(const Error& error) {
    FUZZ_CHECK(!error.text.empty() && printable(error.text) == error.text);
    FUZZ_CHECK(error.retry_after_ms.value_or(0) <= 3'600'000);
}

class ScriptedHttp : public HttpClient {
  public:
    struct Asked {
        std::string method;
        Url url;
        NamedValues headers;
        long status = 0;  // 0: nobody answered
    };

    explicit ScriptedHttp(std::string_view script) : script_(script) {}

    const std::vector<Asked>& asked() const { return asked_; }
    long last_status() const { return asked_.empty() ? 0 : asked_.back().status; }

    Result<HttpResponse> perform(const HttpRequest& request) override {
        const std::lock_guard lock(mutex_);
        const auto url = parse_url(request.url);
        FUZZ_CHECK(url.has_value());
        asked_.push_back({request.method, *url, request.headers, 0});
        for (const auto& [name, value] : request.headers) {
            // As the client does before anything is sent.
            if ((name + value).find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
                return fail(ErrorKind::kInvalid, "a header holds a line break");
            }
        }
        if (script_.empty()) return fail(ErrorKind::kUnavailable, "nobody answers");
        std::string_view answer = cut(script_, "\n%%\n");
        HttpResponse response;
        // As libcurl gives them: three digits, headers without line breaks or zeros.
        response.status =
            static_cast<long>(whole_number(cut(answer, "\n").substr(0, 3)).value_or(200));
        while (!answer.empty()) {
            std::string_view line = cut(answer, "\n");
            if (line.empty()) break;
            line = line.substr(0, line.find('\0'));
            const std::string name(cut(line, ": "));
            response.headers.emplace_back(name, line);
        }
        asked_.back().status = response.status;
        const auto body = std::as_bytes(std::span(answer));
        const bool into = !request.into.empty() && response.status / 100 == 2;
        if (into && body.size() > request.into.size()) {
            return fail(ErrorKind::kCorrupt, "longer than it may be");
        }
        if (into) {
            std::ranges::copy(body, request.into.begin());
            response.into_bytes = body.size();
        } else {
            response.body.assign(body.begin(), body.end());
        }
        return response;
    }

  private:
    std::mutex mutex_;
    std::string_view script_;
    std::vector<Asked> asked_;
};

/// Sleeping takes no time.
class FuzzClock : public Clock {
  public:
    std::int64_t now_ms() override { return now_ms_; }
    void sleep_for(Milliseconds duration) override {
        FUZZ_CHECK(duration.count() >= 0 && duration.count() <= 3'600'000);
        now_ms_ += duration.count();
    }

  private:
    std::int64_t now_ms_ = 1'800'000'000'000;  // Fri, 15 Jan 2027 08:00:00 GMT
};

}  // namespace wisp::fuzz
