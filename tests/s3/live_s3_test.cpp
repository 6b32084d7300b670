// What only a real server can tell; run through with_s3.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "expect_result.hpp"
#include "store/s3/aws_profile.hpp"
#include "store/s3/s3_store.hpp"

namespace wisp::testing {
namespace {

/// The machine's clock, off by a fixed amount.
class WrongClock : public Clock {
  public:
    explicit WrongClock(std::int64_t off_ms) : off_ms_(off_ms) {}
    std::int64_t now_ms() override { return system_clock()->now_ms() + off_ms_; }
    void sleep_for(Milliseconds duration) override { system_clock()->sleep_for(duration); }

  private:
    std::int64_t off_ms_;
};

class LiveS3 : public ::testing::Test {
  protected:
    void SetUp() override {
        const char* url = std::getenv("WISP_TEST_BUCKET");
        if (url == nullptr || *url == '\0') {
            GTEST_SKIP() << "WISP_TEST_BUCKET is not set: no S3 server to speak to";
        }
        bucket_ = value_of(open_location(url)).url.substr(5);
        settings_ = value_of(s3_settings_from(process_environment(), bucket_));
    }
    std::shared_ptr<Store> store(const Environment& environment = process_environment(),
                                 std::int64_t off_ms = 0) {
        return make_s3_store(settings_, environment, std::make_shared<WrongClock>(off_ms));
    }
    std::string bucket_;
    S3Settings settings_;
};

TEST_F(LiveS3, PutsLargeObjectsInParts) {
    settings_.multipart_above_bytes = 6 << 20;
    settings_.part_bytes = 5 << 20;
    Random random(1);
    Bytes bytes((std::size_t{23} << 20) + 1);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() >> 56);
    const auto s3 = store();
    value_of(s3->put("parts/large", as_bytes("was there before")));
    value_of(s3->put("parts/large", bytes));
    EXPECT_EQ(value_of(s3->head("parts/large")).size_bytes, bytes.size());
    EXPECT_TRUE(value_of(read_whole(*s3, "parts/large", bytes.size())) == bytes);
    Bytes into(1000);
    EXPECT_EQ(value_of(s3->read("parts/large", 5'242'000, into)), 1000U);
    EXPECT_TRUE(std::equal(into.begin(), into.end(), bytes.begin() + 5'242'000));
    value_of(s3->remove("parts/large"));
}

TEST_F(LiveS3, WorksWithAClockThatIsHoursOff) {
    for (const std::int64_t off_ms : {-7'200'000, 7'200'000}) {
        const auto s3 = store(process_environment(), off_ms);
        value_of(s3->put("skewed", as_bytes("x")));
        EXPECT_EQ(value_of(s3->head("skewed")).size_bytes, 1U);
        EXPECT_LT(std::abs(value_of(s3->now_ms()) - system_clock()->now_ms()), 60'000);
    }
}

TEST_F(LiveS3, IsRefusedWithTheWrongSecret) {
    const auto s3 = store([](const char* name) -> std::string {
        if (std::string_view(name) == "AWS_SECRET_ACCESS_KEY") return "not-the-secret";
        return process_environment()(name);
    });
    const auto written = s3->put("key", as_bytes("x"));
    EXPECT_EQ(outcome_of(written), "denied");
    EXPECT_EQ(text_of(written).find("not-the-secret"), std::string::npos);
    EXPECT_NE(text_of(written).find("AWS_ACCESS_KEY_ID"), std::string::npos);
    EXPECT_EQ(outcome_of(s3->head("key")), "denied");
    EXPECT_EQ(outcome_of(s3->list("", "", 1)), "denied");
}

TEST_F(LiveS3, FindsItsRegionByItself) {
    settings_.region = "eu-central-1";
    value_of(store()->put("region", as_bytes("x")));
}

TEST_F(LiveS3, NamesTheBucketThatIsMissing) {
    settings_.bucket = "no-such-bucket";
    const auto s3 = store();
    for (const auto& outcome : {s3->put("a", as_bytes("x")), s3->remove("a")}) {
        EXPECT_EQ(outcome_of(outcome), "no_run");
        EXPECT_NE(text_of(outcome).find("no-such-bucket"), std::string::npos);
    }
    EXPECT_EQ(outcome_of(s3->create("a", as_bytes("x"))), "no_run");
    EXPECT_EQ(outcome_of(s3->list("", "", 1)), "no_run");
    EXPECT_EQ(outcome_of(s3->head("a")), "not_found");
    EXPECT_EQ(outcome_of(s3->now_ms()), "not_found");
}

}  // namespace
}  // namespace wisp::testing
