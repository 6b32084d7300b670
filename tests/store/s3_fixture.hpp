// An S3Store that speaks to a server whose answers the test writes.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/bytes.hpp"
#include "expect_result.hpp"
#include "store/fake_web.hpp"
#include "store/s3/s3_store.hpp"

namespace wisp::testing {

inline constexpr std::int64_t kWebNow = 1'800'000'000'000;  // Fri, 15 Jan 2027 08:00:00 GMT
inline constexpr const char* kWebDate = "Fri, 15 Jan 2027 08:00:00 GMT";
inline constexpr const char* kSecret = "hush-hush";

inline S3Settings settings_for(const std::string& endpoint) {
    S3Settings settings;
    settings.bucket = "bucket";
    settings.endpoint = endpoint;
    settings.connect_timeout = Milliseconds(2000);
    settings.stall_timeout = Milliseconds(2000);
    return settings;
}

inline std::map<std::string, std::string> test_keys() {
    return {{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", kSecret}};
}

inline std::shared_ptr<Store> store_at(const std::string& endpoint, std::int64_t now_ms = kWebNow) {
    return make_s3_store(settings_for(endpoint), environment_of(test_keys()),
                         std::make_shared<SetClock>(now_ms));
}

/// A FakeWeb and a store in front of it.
struct FakeS3 {
    explicit FakeS3(FakeWeb::Answer answer) : web(std::move(answer)), store(store_at(web.url())) {}
    Result<std::size_t> read(std::size_t count, std::uint64_t offset = 0) {
        into.assign(count + 8, std::byte{0x23});
        return store->read("key", offset, std::span(into).first(count));
    }
    FakeWeb web;
    std::shared_ptr<Store> store;
    Bytes into;  // with room behind it that nobody may touch
};

inline std::string error_xml(const std::string& code, const std::string& more = "") {
    return "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>words</Message>" +
           more + "</Error>";
}

inline void refuse(httplib::Response& response, int status, const std::string& code,
                   const std::string& more = "") {
    response.status = status;
    response.set_content(error_xml(code, more), "application/xml");
}

}  // namespace wisp::testing
