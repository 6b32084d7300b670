#include "store/s3/sigv4.hpp"

#include <gtest/gtest.h>

namespace wisp::testing {
namespace {

// The worked examples of "Signature calculations for the Authorization header" in Amazon's S3 API
// reference, with its published, worthless keys.
const AwsKeys kExampleKeys{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
const SigningScope kScope{"us-east-1", "s3", "20130524T000000Z"};
const std::string kEmptySha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

SignableRequest request_for(const std::string& path, NamedValues query = {}) {
    SignableRequest request{"GET", path, std::move(query), {}, kEmptySha256};
    request.headers = {{"Host", "examplebucket.s3.amazonaws.com"},
                       {"x-amz-content-sha256", kEmptySha256},
                       {"x-amz-date", kScope.amz_date}};
    return request;
}

TEST(SigV4, SignsTheExamplesOfTheReference) {
    SignableRequest get = request_for("/test.txt");
    get.headers.emplace_back("Range", "bytes=0-9");
    EXPECT_EQ(sign_v4(get, kExampleKeys, kScope).hex,
              "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    EXPECT_EQ(sign_v4(request_for("/", {{"lifecycle", ""}}), kExampleKeys, kScope).hex,
              "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    EXPECT_EQ(
        sign_v4(request_for("/", {{"prefix", "J"}, {"max-keys", "2"}}), kExampleKeys, kScope).hex,
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");

    SignableRequest put{"PUT",
                        "/" + percent_encoded("test$file.text", true),
                        {},
                        {},
                        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"};
    put.headers = {{"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                   {"Host", "examplebucket.s3.amazonaws.com"},
                   {"x-amz-content-sha256", put.payload_sha256},
                   {"x-amz-date", kScope.amz_date},
                   {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    EXPECT_EQ(sign_v4(put, kExampleKeys, kScope).hex,
              "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(SigV4, NamesKeyAndScopeButNeverTheSecret) {
    const RequestSignature signature = sign_v4(request_for("/a"), kExampleKeys, kScope);
    EXPECT_TRUE(signature.authorization.starts_with(
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature="));
    EXPECT_EQ(signature.authorization.find(kExampleKeys.secret_access_key), std::string::npos);
    EXPECT_EQ(signature.string_to_sign.find(kExampleKeys.secret_access_key), std::string::npos);
}

TEST(SigV4, EncodesWhatIsNotUnreserved) {
    EXPECT_EQ(percent_encoded("a b+c/d~é%", true), "a%20b%2Bc/d~%C3%A9%25");
    EXPECT_EQ(percent_encoded("a/b", false), "a%2Fb");
    EXPECT_EQ(percent_decoded("a%20b%2Bc/d~%C3%A9%25"), "a b+c/d~é%");
    EXPECT_EQ(percent_decoded("%zz%4"), "%zz%4");
}

TEST(SigV4, SortsQueriesByTheirEncodedForm) {
    EXPECT_EQ(canonical_query({{"b", "2"}, {"a", "z"}, {"a", "B"}, {"a-", ""}, {"uploads", ""}}),
              "a=B&a=z&a-=&b=2&uploads=");
}

TEST(SigV4, WritesTimesInTheirBasicForm) {
    EXPECT_EQ(amz_date_of(1440938160000), "20150830T123600Z");
    EXPECT_EQ(amz_date_of(1709251199999), "20240229T235959Z");
}

}  // namespace
}  // namespace wisp::testing
