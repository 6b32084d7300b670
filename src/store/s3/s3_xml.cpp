#include "store/s3/s3_xml.hpp"

#include <algorithm>
#include <pugixml.hpp>
#include <sstream>

#include "base/decimal.hpp"
#include "store/s3/wire_time.hpp"

namespace wisp {
namespace {

/// Prefixes of namespaces vary between servers; local names do not.
std::string_view local_name(const pugi::xml_node& node) {
    const std::string_view name = node.name();
    const auto colon = name.find(':');
    return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

pugi::xml_node child(const pugi::xml_node& parent, std::string_view name) {
    return parent.find_child([&](const pugi::xml_node& node) { return local_name(node) == name; });
}

std::string text(const pugi::xml_node& parent, std::string_view name) {
    return child(parent, name).text().get();
}

/// Whether a text in it could hold a zero, which XML has no way to write; texts come as C strings,
/// and another key would be read than was listed. Numbers that do not fit count as zero too.
bool holds_zero(std::string_view xml) {
    if (xml.find('\0') != std::string_view::npos) return true;
    constexpr std::size_t kMostDigits = 7;  // of 1114111, or of 10FFFF
    for (auto at = xml.find("&#"); at != std::string_view::npos; at = xml.find("&#", at + 2)) {
        std::string_view digits = xml.substr(at + 2);
        if (digits.starts_with('x')) digits.remove_prefix(1);
        digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
        const auto count = digits.find_first_not_of("0123456789abcdefABCDEF");
        if (count == 0 || count > kMostDigits) return true;
    }
    return false;
}

/// The root element, if the document is whole and its root has that name.
pugi::xml_node root_of(pugi::xml_document& document, std::string_view xml, std::string_view name) {
    if (holds_zero(xml)) return {};
    if (!document.load_buffer(xml.data(), xml.size(), pugi::parse_default, pugi::encoding_utf8)) {
        return {};
    }
    const pugi::xml_node root = document.document_element();
    return local_name(root) == name ? root : pugi::xml_node();
}

std::optional<ListedObject> object_of(const pugi::xml_node& contents, bool encoded) {
    std::string raw_key = text(contents, "Key");
    const auto size = whole_number(text(contents, "Size"));
    if (raw_key.empty() || !size) return std::nullopt;
    ListedObject object;
    // The encoding is that of forms, in which a blank is a plus.
    if (encoded) std::ranges::replace(raw_key, '+', ' ');
    object.key = encoded ? percent_decoded(raw_key) : raw_key;
    object.info.size_bytes = *size;
    object.info.modified_ms = parse_iso_time(text(contents, "LastModified")).value_or(0);
    return object;
}

}  // namespace

std::optional<S3Problem> parse_problem(std::string_view xml) {
    pugi::xml_document document;
    pugi::xml_node root = root_of(document, xml, "Error");
    if (!root) root = child(root_of(document, xml, "ErrorResponse"), "Error");
    if (!root) return std::nullopt;
    return S3Problem{text(root, "Code"), text(root, "Message"), text(root, "Region")};
}

std::optional<ListPage> parse_list_page(std::string_view xml) {
    pugi::xml_document document;
    const pugi::xml_node root = root_of(document, xml, "ListBucketResult");
    if (!root) return std::nullopt;
    const bool encoded = text(root, "EncodingType") == "url";
    ListPage page;
    for (const pugi::xml_node& node : root.children()) {
        if (local_name(node) != "Contents") continue;
        auto object = object_of(node, encoded);
        if (!object) return std::nullopt;
        page.objects.push_back(std::move(*object));
    }
    page.truncated = text(root, "IsTruncated") == "true";
    page.next_token = text(root, "NextContinuationToken");
    return page;
}

std::optional<std::string> parse_upload_id(std::string_view xml) {
    pugi::xml_document document;
    const pugi::xml_node root = root_of(document, xml, "InitiateMultipartUploadResult");
    std::string id = text(root, "UploadId");
    if (id.empty()) return std::nullopt;
    return id;
}

bool is_upload_result(std::string_view xml) {
    pugi::xml_document document;
    return static_cast<bool>(root_of(document, xml, "CompleteMultipartUploadResult"));
}

std::optional<StsAnswer> parse_sts_answer(std::string_view xml) {
    pugi::xml_document document;
    const pugi::xml_node root = root_of(document, xml, "AssumeRoleWithWebIdentityResponse");
    const pugi::xml_node keys =
        child(child(root, "AssumeRoleWithWebIdentityResult"), "Credentials");
    const auto expires_ms = parse_iso_time(text(keys, "Expiration"));
    if (!keys || !expires_ms) return std::nullopt;
    StsAnswer answer;
    answer.keys = {text(keys, "AccessKeyId"), text(keys, "SecretAccessKey"),
                   text(keys, "SessionToken")};
    answer.expires_ms = *expires_ms;
    return answer;
}

std::string write_upload_parts(const std::vector<std::string>& etags) {
    pugi::xml_document document;
    pugi::xml_node root = document.append_child("CompleteMultipartUpload");
    root.append_attribute("xmlns") = "http://s3.amazonaws.com/doc/2006-03-01/";
    for (std::size_t i = 0; i < etags.size(); ++i) {
        pugi::xml_node part = root.append_child("Part");
        part.append_child("PartNumber").text() = static_cast<unsigned long long>(i + 1);
        part.append_child("ETag").text() = etags[i].c_str();
    }
    std::ostringstream out;
    document.save(out, "", pugi::format_raw);
    return out.str();
}

}  // namespace wisp
