#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <thread>

#include "store/s3_fixture.hpp"
#include "wisp/control.hpp"

namespace wisp::testing {
namespace {

using Request = httplib::Request;
using Response = httplib::Response;

std::string outcome_of_put(int status, const std::string& code) {
    FakeS3 s3([&](const Request&, Response& response) { refuse(response, status, code); });
    const auto written = s3.store->put("key", as_bytes("x"));
    EXPECT_EQ(text_of(written).find(kSecret), std::string::npos);
    EXPECT_EQ(s3.web.requests().size(), 1U) << "the store itself does not retry " << code;
    return outcome_of(written);
}

TEST(S3Answers, AreNamedByTheirCure) {
    EXPECT_EQ(outcome_of_put(400, "InvalidRequest"), "invalid");
    EXPECT_EQ(outcome_of_put(400, "RequestTimeout"), "unavailable");
    EXPECT_EQ(outcome_of_put(401, "Unauthorized"), "denied");
    EXPECT_EQ(outcome_of_put(403, "AccessDenied"), "denied");
    EXPECT_EQ(outcome_of_put(403, "QuotaExceeded"), "no_space");
    EXPECT_EQ(outcome_of_put(404, "NoSuchBucket"), "no_run");
    EXPECT_EQ(outcome_of_put(409, "OperationAborted"), "unavailable");
    EXPECT_EQ(outcome_of_put(429, "TooManyRequests"), "unavailable");
    EXPECT_EQ(outcome_of_put(500, "InternalError"), "unavailable");
    EXPECT_EQ(outcome_of_put(501, "NotImplemented"), "incapable");
    EXPECT_EQ(outcome_of_put(503, "SlowDown"), "unavailable");
    EXPECT_EQ(outcome_of_put(507, "StorageFull"), "no_space");
}

TEST(S3Answers, NameTheBucketThatIsMissing) {
    FakeS3 s3([](const Request&, Response& response) { refuse(response, 404, "NoSuchBucket"); });
    EXPECT_NE(text_of(s3.store->put("key", {})).find("there is no bucket 'bucket'"),
              std::string::npos)
        << text_of(s3.store->put("key", {}));
    EXPECT_EQ(outcome_of(s3.store->remove("key")), "no_run");
}

TEST(S3Answers, OfAWebServerThatIsNoS3AreCalledSo) {
    FakeS3 s3([](const Request& request, Response& response) {
        response.status = request.path.ends_with("busy") ? 503 : 404;
        response.set_content("<!DOCTYPE html><html></html>", "text/html;charset=utf-8");
    });
    EXPECT_EQ(outcome_of(read_whole(*s3.store, "key", 100)), "invalid");
    EXPECT_NE(text_of(read_whole(*s3.store, "key", 100)).find("this is no S3 server"),
              std::string::npos);
    // A load balancer in front of one.
    EXPECT_EQ(outcome_of(read_whole(*s3.store, "busy", 100)), "unavailable");
}

TEST(S3Answers, SayHowLongToWait) {
    FakeS3 s3([](const Request& request, Response& response) {
        refuse(response, request.path.ends_with("hf") ? 429 : 503, "SlowDown");
        if (request.path.ends_with("hf")) response.set_header("RateLimit", "\"api\";r=0;t=55");
        if (request.path.ends_with("s3")) response.set_header("Retry-After", "7");
    });
    EXPECT_EQ(s3.store->put("s3", {}).error().retry_after_ms, 7000U);
    EXPECT_NE(text_of(s3.store->put("s3", {})).find("Retry-After: 7"), std::string::npos);
    EXPECT_EQ(s3.store->put("hf", {}).error().retry_after_ms, 55'000U);
    EXPECT_EQ(s3.store->put("silent", {}).error().retry_after_ms, std::nullopt);
}

TEST(S3Answers, NothingListening) {
    int port = 0;
    {
        port = FakeWeb([](const Request&, Response&) {}).port();
    }
    const auto store = store_at("http://127.0.0.1:" + std::to_string(port));
    EXPECT_EQ(outcome_of(store->head("key")), "unavailable");
}

TEST(S3Reads, RefuseWhatWasNotAskedFor) {
    const auto outcome = [](int status, const std::string& range, const std::string& body) {
        FakeS3 s3([&](const Request&, Response& response) {
            response.status = status;
            if (!range.empty()) response.set_header("Content-Range", range);
            response.set_content(body, "application/octet-stream");
        });
        const std::string result = outcome_of(s3.read(4, 2));
        for (std::size_t i = 4; i < s3.into.size(); ++i) EXPECT_EQ(s3.into[i], std::byte{0x23});
        return result;
    };
    EXPECT_EQ(outcome(206, "bytes 2-5/10", "abcd"), "ok");
    EXPECT_EQ(outcome(206, "bytes 2-3/4", "ab"), "ok");
    EXPECT_EQ(outcome(206, "bytes 2-5/10", "abcde"), "corrupt");
    EXPECT_EQ(outcome(206, "bytes 2-6/10", "abcd"), "corrupt");
    EXPECT_EQ(outcome(206, "bytes 0-3/10", "abcd"), "corrupt");
    EXPECT_EQ(outcome(206, "bytes 2-3/10", "ab"), "corrupt");
    EXPECT_EQ(outcome(206, "bytes 2-5/4", "abcd"), "corrupt");
    EXPECT_EQ(outcome(206, "", "abcd"), "corrupt");
    EXPECT_EQ(outcome(206, "bytes 5-2/10", "abcd"), "corrupt");
    EXPECT_EQ(outcome(206, "bytes 2-5/10", "abc"), "unavailable");
    EXPECT_EQ(outcome(200, "", "abcd"), "incapable");
    EXPECT_EQ(outcome(200, "", "abcdef"), "corrupt");
    EXPECT_EQ(outcome(416, "bytes */2", ""), "ok");
    EXPECT_EQ(outcome(416, "bytes */3", ""), "corrupt");
    EXPECT_EQ(outcome(204, "", ""), "corrupt");
}

TEST(S3Reads, EndWithATruncatedBody) {
    FakeS3 s3([](const Request&, Response& response) {
        response.status = 206;
        response.set_header("Content-Range", "bytes 0-99/100");
        response.set_content_provider(100, "application/octet-stream",
                                      [](std::size_t, std::size_t, httplib::DataSink& sink) {
                                          sink.write("abc", 3);
                                          return false;
                                      });
    });
    EXPECT_EQ(outcome_of(s3.read(100)), "unavailable");
}

void answer_endlessly(Response& response) {
    response.set_chunked_content_provider("application/xml",
                                          [](std::size_t, httplib::DataSink& sink) {
                                              static const std::string piece(1 << 16, 'x');
                                              return sink.write(piece.data(), piece.size());
                                          });
}

TEST(S3Reads, EndAnEndlessBody) {
    FakeS3 s3([](const Request&, Response& response) {
        response.status = 206;
        response.set_header("Content-Range", "bytes 0-99/100");
        answer_endlessly(response);
    });
    EXPECT_EQ(outcome_of(s3.read(100)), "corrupt");
}

TEST(S3Lists, EndAnEndlessAnswer) {
    FakeS3 s3([](const Request&, Response& response) { answer_endlessly(response); });
    EXPECT_EQ(outcome_of(s3.store->list("", "", 10)), "corrupt");
}

std::string page(const std::vector<std::string>& keys, const std::string& more) {
    std::string xml = "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" + more;
    for (const std::string& key : keys) {
        xml += "<Contents><Key>" + key + "</Key><Size>1</Size>" +
               "<LastModified>2027-01-15T08:00:00.123Z</LastModified></Contents>";
    }
    return xml + "</ListBucketResult>";
}

std::string outcome_of_list(const std::string& xml) {
    FakeS3 s3([&](const Request&, Response& response) { response.set_content(xml, "text/xml"); });
    return outcome_of(s3.store->list("a", "", 10));
}

TEST(S3Lists, RefuseNonsense) {
    EXPECT_EQ(outcome_of_list(page({"a1", "a2"}, "")), "ok");
    EXPECT_EQ(outcome_of_list(page({"a1", "b"}, "")), "corrupt");
    EXPECT_EQ(outcome_of_list(page({"a2", "a1"}, "")), "incapable");
    EXPECT_EQ(outcome_of_list(page({}, "<IsTruncated>true</IsTruncated>")), "corrupt");
    EXPECT_EQ(outcome_of_list("<html/>"), "corrupt");
    EXPECT_EQ(outcome_of_list("not even XML"), "corrupt");
    EXPECT_EQ(outcome_of_list("<ListBucketResult><Contents><Key>a</Key></Contents>"), "corrupt");
    EXPECT_EQ(outcome_of_list("<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents>"
                              "</ListBucketResult>"),
              "corrupt");
}

TEST(S3Lists, DecodeKeysAndFollowTokens) {
    FakeS3 s3([](const Request& request, Response& response) {
        const bool second = request.get_param_value("continuation-token") == "to+ken/=";
        response.set_content(second ? page({"d"}, "")
                                    : page({"a+b%2Bc", "b/", "c%25"},
                                           "<EncodingType>url</EncodingType><IsTruncated>true"
                                           "</IsTruncated><NextContinuationToken>to+ken/="
                                           "</NextContinuationToken>"),
                             "text/xml");
    });
    std::vector<std::string> keys;
    for (const auto& object : value_of(s3.store->list("", "", 10))) keys.push_back(object.key);
    EXPECT_EQ(keys, (std::vector<std::string>{"a b+c", "c%", "d"}));
    EXPECT_EQ(value_of(s3.store->list("", "", 10))[0].info.modified_ms, kWebNow + 123);
}

TEST(S3Clock, IsCorrectedOnceFromTheServers) {
    FakeWeb web([](const Request& request, Response& response) {
        response.set_header("Date", kWebDate);
        const bool right = request.get_header_value("x-amz-date") == "20270115T080000Z";
        if (!right) refuse(response, 403, "RequestTimeTooSkewed");
    });
    const auto store = store_at(web.url(), kWebNow - 3'600'000);
    value_of(store->put("key", as_bytes("x")));
    EXPECT_EQ(web.requests().size(), 2U);
    value_of(store->put("key", as_bytes("x")));
    EXPECT_EQ(web.requests().size(), 3U);
    EXPECT_EQ(value_of(store->now_ms()), kWebNow);
}

TEST(S3Clock, ThatIsRightDoesNotHideARefusal) {
    FakeS3 s3([](const Request&, Response& response) {
        response.set_header("Date", kWebDate);
        refuse(response, 403, "AccessDenied");
    });
    EXPECT_EQ(outcome_of(s3.store->put("key", {})), "denied");
    EXPECT_EQ(s3.web.requests().size(), 1U);
}

TEST(S3Keys, AreRenewedOnceWhenTheStoreCallsThemExpired) {
    std::atomic<int> served = 0;
    FakeWeb agent([&](const Request&, Response& response) {
        const std::string number = std::to_string(++served);
        response.set_content("{\"AccessKeyId\":\"id" + number +
                                 "\",\"SecretAccessKey\":\"s\",\"Token\":\"t" + number + "\"}",
                             "application/json");
    });
    std::atomic<int> good = 2;
    FakeWeb web([&](const Request& request, Response& response) {
        const bool right =
            request.get_header_value("x-amz-security-token") == "t" + std::to_string(good);
        if (!right) refuse(response, 400, "ExpiredToken");
    });
    const auto store =
        make_s3_store(settings_for(web.url()),
                      environment_of({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url()},
                                      {"AWS_CONFIG_FILE", "/nonexistent"},
                                      {"AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"}}),
                      std::make_shared<SetClock>(kWebNow));
    value_of(store->put("key", as_bytes("x")));
    EXPECT_EQ(served, 2);
    good = 100;
    EXPECT_EQ(outcome_of(store->put("key", as_bytes("x"))), "denied");
    EXPECT_EQ(served, 3);
}

TEST(S3Create, WaitsForAConflictToBeDecided) {
    std::atomic<int> asked = 0;
    FakeS3 s3([&](const Request& request, Response& response) {
        EXPECT_EQ(request.get_header_value("If-None-Match"), "*");
        const int number = ++asked;
        if (number <= 2) refuse(response, 409, "ConditionalRequestConflict");
        if (number == 4) refuse(response, 412, "PreconditionFailed");
        if (number > 4) refuse(response, 409, "ConditionalRequestConflict");
    });
    EXPECT_EQ(value_of(s3.store->create("key", as_bytes("x"))), Created::kNew);
    EXPECT_EQ(value_of(s3.store->create("key", as_bytes("x"))), Created::kAlreadyThere);
    EXPECT_EQ(outcome_of(s3.store->create("key", as_bytes("x"))), "unavailable");
}

/// Answers the first request of each connection and closes when a second one comes.
class DyingServer {
  public:
    DyingServer() {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
        if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
            ::listen(listener_, 8) != 0 ||
            ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
            throw std::runtime_error("no socket");
        }
        port_ = ntohs(address.sin_port);
        thread_ = std::jthread([this] { serve(); });
    }
    ~DyingServer() {
        ::shutdown(listener_, SHUT_RDWR);
        thread_.join();
        ::close(listener_);
    }
    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    int requests() const { return requests_; }

  private:
    bool take_request(int connection) {
        std::string seen;
        std::array<char, 4096> buffer{};
        while (seen.find("\r\n\r\nbody") == std::string::npos) {
            const auto count = ::read(connection, buffer.data(), buffer.size());
            if (count <= 0) return false;
            seen.append(buffer.data(), static_cast<std::size_t>(count));
        }
        ++requests_;
        return true;
    }
    void serve() {
        for (int connection; (connection = ::accept(listener_, nullptr, nullptr)) >= 0;) {
            const std::string_view answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            if (take_request(connection) && ::write(connection, answer.data(), answer.size()) > 0) {
                take_request(connection);
            }
            ::close(connection);
        }
    }
    int listener_ = -1;
    int port_ = 0;
    std::atomic<int> requests_ = 0;
    std::jthread thread_;
};

TEST(S3Create, IsNeverSentAgainBehindTheCallersBack) {
    // A server that creates and dies would answer "already there" to the winner's second sending.
    DyingServer server;
    const auto store = store_at(server.url());
    value_of(store->put("a", as_bytes("body")));
    const auto created = store->create("b", as_bytes("body"));
    EXPECT_EQ(outcome_of(created), "unavailable") << text_of(created);
    EXPECT_EQ(server.requests(), 2);
}

TEST(S3Stop, EndsARequestUnderWay) {
    std::stop_source source;
    const StopScope scope(source.get_token());
    FakeS3 s3([&](const Request&, Response& response) {
        source.request_stop();
        answer_endlessly(response);
    });
    Bytes into(std::size_t{1} << 26);
    const auto result = s3.store->read("key", 0, into);
    EXPECT_TRUE(text_of(result).starts_with("stopped as asked")) << text_of(result);
}

TEST(S3Stop, EndsARequestThatGetsNoAnswer) {
    std::stop_source source;
    std::promise<void> over;
    FakeS3 s3([&, ended = over.get_future().share()](const Request&, Response&) {
        source.request_stop();
        ended.wait();
    });
    {
        const StopScope scope(source.get_token());
        const auto start = std::chrono::steady_clock::now();
        const auto result = s3.store->head("key");
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
        EXPECT_TRUE(text_of(result).starts_with("stopped as asked")) << text_of(result);
    }
    over.set_value();
}

TEST(S3Trickle, IsTakenForAStoreThatIsAway) {
    FakeS3 s3([](const Request&, Response& response) {
        response.status = 206;
        response.set_header("Content-Range", "bytes 0-999999/1000000");
        response.set_content_provider(
            1'000'000, "binary/octet-stream",
            [](std::size_t, std::size_t, httplib::DataSink& sink) {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                return sink.write("x", 1);
            });
    });
    const auto result = s3.read(1'000'000);
    EXPECT_EQ(outcome_of(result), "unavailable") << text_of(result);
}

}  // namespace
}  // namespace wisp::testing
