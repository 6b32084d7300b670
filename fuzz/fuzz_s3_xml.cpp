// Any bytes as one of the XML documents that S3 and STS answer with. What is understood, written as
// a server would write it, is understood the same.
#include <fmt/format.h>

#include "fuzz_input.hpp"
#include "store/s3/s3_xml.hpp"

using namespace wisp;

namespace {

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const auto code = static_cast<unsigned char>(c);
        if (code < ' ' || c == '&' || c == '<' || c == '>') {
            out += fmt::format("&#{};", code);
        } else {
            out += c;
        }
    }
    return out;
}

std::string element(std::string_view name, std::string_view text) {
    return fmt::format("<{0}>{1}</{0}>", name, escaped(text));
}

void check_problem(std::string_view xml) {
    const auto problem = parse_problem(xml);
    if (!problem) return;
    const std::string inner = element("Code", problem->code) +
                              element("Message", problem->message) +
                              element("Region", problem->region);
    for (const std::string& written :
         {"<Error>" + inner + "</Error>",
          "<s:ErrorResponse><s:Error>" + inner + "</s:Error></s:ErrorResponse>"}) {
        const auto again = parse_problem(written);
        FUZZ_CHECK(again && again->code == problem->code && again->region == problem->region);
        FUZZ_CHECK(again->message == problem->message);
    }
}

void check_list(std::string_view xml) {
    const auto page = parse_list_page(xml);
    if (!page) return;
    std::string written = "<ListBucketResult>" + element("EncodingType", "url") +
                          element("IsTruncated", page->truncated ? "true" : "false") +
                          element("NextContinuationToken", page->next_token);
    for (const ListedObject& object : page->objects) {
        FUZZ_CHECK(!object.key.empty() && object.info.modified_ms >= 0);
        written += "<Contents>" + element("Key", percent_encoded(object.key, true)) +
                   element("Size", fmt::format("{}", object.info.size_bytes)) + "</Contents>";
    }
    const auto again = parse_list_page(written + "</ListBucketResult>");
    FUZZ_CHECK(again && again->objects.size() == page->objects.size());
    FUZZ_CHECK(again->truncated == page->truncated && again->next_token == page->next_token);
    for (std::size_t i = 0; i < page->objects.size(); ++i) {
        FUZZ_CHECK(again->objects[i].key == page->objects[i].key);
        FUZZ_CHECK(again->objects[i].info.size_bytes == page->objects[i].info.size_bytes);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view xml(reinterpret_cast<const char*>(data), size);
    check_problem(xml);
    check_list(xml);
    if (const auto id = parse_upload_id(xml)) {
        FUZZ_CHECK(!id->empty() && !is_upload_result(xml));
        const auto again =
            parse_upload_id("<InitiateMultipartUploadResult>" + element("UploadId", *id) +
                            "</InitiateMultipartUploadResult>");
        FUZZ_CHECK(again == id);
    }
    if (is_upload_result(xml)) FUZZ_CHECK(!parse_problem(xml) && !parse_list_page(xml));
    if (const auto answer = parse_sts_answer(xml)) FUZZ_CHECK(answer->expires_ms > 0);
    // An ETag is foreign too, and goes back into a document of ours.
    const std::string parts = write_upload_parts({std::string(xml.substr(0, 100)), "\"e\""});
    FUZZ_CHECK(parts.find("<PartNumber>2</PartNumber><ETag>\"e\"</ETag>") != std::string::npos);
    FUZZ_CHECK(!is_upload_result(parts) && !parse_problem(parts));
    return 0;
}
