#include "store/s3/s3_multipart.hpp"
#include "store/s3_fixture.hpp"

namespace wisp::testing {
namespace {

using Request = httplib::Request;
using Response = httplib::Response;

/// Takes a multipart upload; `complete` answers its end.
struct FakeUpload {
    explicit FakeUpload(FakeWeb::Answer complete)
        : web([this, complete](const Request& request, Response& response) {
              if (request.method == "DELETE") {
                  ++aborted;
                  response.status = 204;
              } else if (request.has_param("uploads")) {
                  response.set_content(
                      "<InitiateMultipartUploadResult><UploadId>u+/=1</UploadId>"
                      "</InitiateMultipartUploadResult>",
                      "text/xml");
              } else if (request.has_param("partNumber")) {
                  EXPECT_EQ(request.get_param_value("uploadId"), "u+/=1");
                  if (request.get_param_value("partNumber") == refused_part) {
                      return refuse(response, 503, "SlowDown");
                  }
                  ++parts;
                  response.set_header("ETag", "\"e" + request.get_param_value("partNumber") + "\"");
              } else {
                  complete(request, response);
              }
          }) {
        S3Settings settings = settings_for(web.url());
        settings.multipart_above_bytes = 10;
        settings.part_bytes = 4;
        store = make_s3_store(settings, environment_of(test_keys()),
                              std::make_shared<SetClock>(kWebNow));
    }
    std::atomic<int> parts = 0;
    std::atomic<int> aborted = 0;
    std::string refused_part;
    FakeWeb web;
    std::shared_ptr<Store> store;
};

const std::string kDone =
    "\n\n<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";

TEST(S3Uploads, AreCompletedWithEveryPartInOrder) {
    std::string listed;
    FakeUpload upload([&](const Request& request, Response& response) {
        listed = request.body;
        response.set_content(kDone, "text/xml");
    });
    value_of(upload.store->put("key", as_bytes("0123456789a")));
    EXPECT_EQ(upload.parts, 3);
    EXPECT_EQ(upload.aborted, 0);
    const auto at = [&](int n) {
        const std::string number = std::to_string(n);
        return listed.find("<PartNumber>" + number + "</PartNumber><ETag>\"e" + number +
                           "\"</ETag>");
    };
    EXPECT_LT(at(1), at(2));
    EXPECT_LT(at(2), at(3));
    EXPECT_NE(at(3), std::string::npos) << listed;
    value_of(upload.store->put("key", as_bytes("0123456789")));
    EXPECT_EQ(upload.parts, 3) << "ten bytes are not above ten";
}

TEST(S3Uploads, FailWithAnErrorInsideA200) {
    FakeUpload upload([](const Request&, Response& response) {
        response.set_content("\n\n" + error_xml("InternalError"), "text/xml");
    });
    EXPECT_EQ(outcome_of(upload.store->put("key", as_bytes("0123456789a"))), "unavailable");
    EXPECT_EQ(upload.aborted, 1);
}

TEST(S3Uploads, FailWithoutAClearAnswer) {
    FakeUpload upload(
        [](const Request&, Response& response) { response.set_content("\n\n\n", "text/xml"); });
    EXPECT_EQ(outcome_of(upload.store->put("key", as_bytes("0123456789a"))), "unavailable");
    EXPECT_EQ(upload.aborted, 1);
}

TEST(S3Uploads, AreAbortedWhenAPartFails) {
    FakeUpload upload([](const Request&, Response&) { ADD_FAILURE() << "completed"; });
    upload.refused_part = "2";
    EXPECT_EQ(outcome_of(upload.store->put("key", as_bytes("0123456789a"))), "unavailable");
    EXPECT_EQ(upload.aborted, 1);
}

TEST(S3Uploads, HaveAtMostTenThousandParts) {
    constexpr std::uint64_t kMiB = 1 << 20;
    EXPECT_EQ(part_size_for(64 * kMiB + 1, 32 * kMiB), 32 * kMiB);
    EXPECT_EQ(part_size_for(10'000 * 32 * kMiB, 32 * kMiB), 32 * kMiB);
    EXPECT_EQ(part_size_for(10'000 * 32 * kMiB + 1, 32 * kMiB), 33 * kMiB);
    const std::uint64_t largest = std::uint64_t{5} << 40;
    EXPECT_LE((largest + part_size_for(largest, kMiB) - 1) / part_size_for(largest, kMiB), 10'000U);
}

}  // namespace
}  // namespace wisp::testing
