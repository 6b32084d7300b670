// One HTTP exchange at a time per caller, over libcurl; the thin layer that everything remote uses.
//
// Never follows a redirect, never retries (but when a kept connection was dead), never decodes a
// body, always verifies TLS, and never holds more of an answer than the request allows.
// Thread-safe: handles, and with them the open connections, are lent out from a pool. An exchange
// ends early, within a tenth of a second, when the caller's work is to end (wisp/control.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "web/named_values.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct HttpRequest {
    std::string method = "GET";
    std::string url;
    NamedValues headers;
    std::span<const std::byte> body;  // must outlive the exchange
    std::span<std::byte> into;        // where the body of a 200 or 206 goes, if not empty
    std::uint64_t answer_limit = 0;   // most bytes of any other body; 0: the usual limit
    Milliseconds connect_timeout{10'000};
    Milliseconds stall_timeout{30'000};  // slower than limits::kSlowestBytesPerSecond
    Milliseconds total_timeout{0};       // 0: by the number of bytes
    bool without_proxy = false;          // metadata services live on this machine
    bool despite_stop = false;           // cleaning up after a stop
    bool send_once = false;              // not even again when a kept connection turns out dead
    const std::atomic<bool>* ended = nullptr;  // ends the exchange when it becomes true
};

struct HttpResponse {
    long status = 0;
    NamedValues headers;  // names in lower case
    Bytes body;
    std::size_t into_bytes = 0;

    /// The first header of that (lower-case) name, else empty.
    std::string_view header(std::string_view name) const;
    std::string_view body_text() const {
        return {reinterpret_cast<const char*>(body.data()), body.size()};
    }
};

class HttpClient {
  public:
    /// `ca_bundle`: a file of certificates instead of the system's, which an empty one stands for
    /// (web/ca_bundle.hpp). `ca_setting` is what a user sets to name one, for messages.
    explicit HttpClient(std::string ca_bundle = {},
                        std::string ca_setting = "AWS_CA_BUNDLE or SSL_CERT_FILE");
    virtual ~HttpClient();

    /// Any answer, whatever its status. kUnavailable when none came whole; kCorrupt when it is
    /// longer than allowed; kDenied when the server's certificate is not trusted.
    virtual Result<HttpResponse> perform(const HttpRequest& request);

  private:
    class Pool;
    std::string ca_bundle_;
    std::string ca_setting_;
    std::unique_ptr<Pool> pool_;
};

}  // namespace wisp
