// What stores answer with in headers and documents, held to its form.
#include <gtest/gtest.h>

#include "store/s3/s3_xml.hpp"
#include "store/s3/wire_range.hpp"
#include "store/s3/wire_time.hpp"
#include "web/http_url.hpp"

namespace wisp::testing {
namespace {

constexpr std::int64_t kWireNow = 1'800'000'000'000;
constexpr const char* kNowText = "Fri, 15 Jan 2027 08:00:00 GMT";

TEST(ContentRange, IsTakenApart) {
    const auto range = parse_content_range("bytes 2-5/10");
    ASSERT_TRUE(range);
    EXPECT_EQ(range->first, 2U);
    EXPECT_EQ(range->length, 4U);
    EXPECT_EQ(range->total, 10U);
    EXPECT_EQ(parse_content_range("bytes 2-5/*")->total, std::nullopt);
    EXPECT_EQ(parse_content_range("bytes */10")->first, std::nullopt);
}

TEST(ContentRange, ThatCannotBeIsNone) {
    for (const char* text :
         {"", "bytes", "bytes 2-5", "bytes 5-2/10", "bytes 2-10/10", "bytes */*", "bytes 2-5/many",
          "bytes -5/10", "bytes 2-/10", "bytes +2-5/10", "lines 2-5/10",
          // Its length is 2^64, which is 0 where it does not fit.
          "bytes 0-18446744073709551615/*", "bytes 0-18446744073709551616/*"}) {
        EXPECT_FALSE(parse_content_range(text)) << text;
    }
}

TEST(WireTimes, AreRead) {
    EXPECT_EQ(parse_http_date(kNowText), kWireNow);
    EXPECT_EQ(parse_iso_time("2027-01-15T08:00:00Z"), kWireNow);
    EXPECT_EQ(parse_iso_time("2027-01-15T08:00:00.1Z"), kWireNow + 100);
    EXPECT_EQ(parse_iso_time("2027-01-15T08:00:00.123456789Z"), kWireNow + 123);
}

TEST(WireTimes, OfServersThatKnowNoneAreNone) {
    // Taken for a time, it would make an object older than any age at which leftovers are swept.
    EXPECT_FALSE(parse_iso_time("0001-01-01T00:00:00Z"));
    EXPECT_FALSE(parse_iso_time("1970-01-01T00:00:00Z"));
    EXPECT_FALSE(parse_http_date("Thu, 01 Jan 1970 00:00:00 GMT"));
    EXPECT_FALSE(parse_http_date("Mon, 01 Jan 1900 00:00:00 GMT"));
}

TEST(WireTimes, BeyondAllCalendarsAreNone) {
    EXPECT_TRUE(parse_http_date("Fri, 31 Dec 9999 23:59:59 GMT"));
    EXPECT_FALSE(parse_http_date("1 Jan 10000 00:00:00 GMT"));
    EXPECT_FALSE(parse_http_date("1 Jan 2147483647 00:00:00 GMT"));
    EXPECT_FALSE(parse_iso_time("9999-12-31T23:59:60Z"));
    EXPECT_FALSE(parse_iso_time("2027-01-15T08:00:00.123wordsZ"));
}

TEST(RetryAfter, IsANumberOrATimeSeenFromTheServersOwn) {
    EXPECT_EQ(parse_retry_after("7", ""), 7U);
    EXPECT_EQ(parse_retry_after("Fri, 15 Jan 2027 08:00:07 GMT", kNowText), 7U);
    EXPECT_EQ(parse_retry_after("Fri, 15 Jan 2027 07:00:00 GMT", kNowText), 0U);
    EXPECT_EQ(parse_retry_after("99999999999", ""), 3600U);
    EXPECT_EQ(parse_retry_after("Sat, 16 Jan 2027 08:00:00 GMT", kNowText), 3600U);
    for (const char* text : {"", "-7", "soon", "Fri, 15 Jan 2027 08:00:07 GMT"}) {
        EXPECT_FALSE(parse_retry_after(text, "")) << text;
    }
}

TEST(ListedKeys, AreNeverCutShort) {
    const auto listed = [](const std::string& key) {
        return parse_list_page("<ListBucketResult><Contents><Key>" + key +
                               "</Key><Size>1</Size></Contents></ListBucketResult>");
    };
    EXPECT_EQ(listed("a&#65;&#x10FFFF;")->objects[0].key, "aA\U0010FFFF");
    for (const char* zero : {"a&#0;b", "a&#x000;b", "a&#4294967296;b", "a&#x100000000;b"}) {
        EXPECT_FALSE(listed(zero)) << zero;
    }
    EXPECT_FALSE(listed(std::string("a\0b", 3)));
}

TEST(Urls, AreReadToTheirEnd) {
    using namespace std::string_literals;
    EXPECT_TRUE(parse_url("https://host/a"));
    EXPECT_FALSE(parse_url("https://host\0.example/a"s));
}

TEST(Urls, NameTheSameHostHoweverOftenTheyAreRead) {
    EXPECT_EQ(parse_url("http://%31%36%39.254.169.254/")->host, "169.254.169.254");
    // Harmless to look at; the metadata service when its text is read again, to be asked.
    EXPECT_FALSE(parse_url("http://169.254.169.25%2534/"));
}

}  // namespace
}  // namespace wisp::testing
