#include "checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/json_sax.hpp"
#include "checkpoint/other_formats.hpp"

namespace wisp {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

/// Walks {"__metadata__": {k: "v"}, name: {"dtype": "", "shape": [], "data_offsets": [b, e]}}.
class HeaderSax : public StrictSax {
  public:
    explicit HeaderSax(SafetensorsHeader& header) : header_(header) {}
    ErrorKind kind() const { return kind_; }

    bool start_object(std::size_t) override {
        if (level_ == 0) {
            level_ = 1;
            return true;
        }
        if (level_ != 1 || name_.empty()) return refuse("an unexpected object");
        level_ = 2;
        in_metadata_ = name_ == kMetadataKey;
        if (!in_metadata_) {
            header_.entries.emplace_back();
            header_.entries.back().info.name = name_;
            fields_seen_ = 0;
        }
        return true;
    }

    bool key(string_t& key) override {
        if (level_ == 1) {
            name_ = key;
            if (key.size() > limits::kTensorNameBytes) return refuse("a tensor name is too long");
            if (header_.entries.size() >= limits::kTensorCount) return refuse("too many tensors");
            if (key.empty()) return refuse("a tensor without a name");
            if (!names_.insert(key).second) return refuse("duplicate key " + shown(key));
            return true;
        }
        field_ = key;
        if (in_metadata_) {
            if (header_.metadata.contains(key)) return refuse("duplicate key " + shown(key));
            return true;
        }
        const unsigned bit = field_ == "dtype"          ? 1
                             : field_ == "shape"        ? 2
                             : field_ == "data_offsets" ? 4
                                                        : 0;
        if (bit == 0) return refuse("unknown field " + shown(key) + " of tensor " + shown(name_));
        if ((fields_seen_ & bit) != 0) return refuse("duplicate key " + shown(key));
        fields_seen_ |= bit;
        return true;
    }

    bool string(string_t& value) override {
        if (level_ != 2) return refuse("an unexpected string");
        if (in_metadata_) {
            header_.metadata.emplace(field_, value);
            return true;
        }
        if (field_ != "dtype" || in_array_) return refuse("an unexpected string");
        const auto dtype = parse_dtype(value);
        if (!dtype) {
            kind_ = ErrorKind::kUnsupported;
            return refuse("tensor " + shown(name_) + " has the unknown dtype " + shown(value));
        }
        header_.entries.back().info.dtype = *dtype;
        return true;
    }

    bool start_array(std::size_t) override {
        if (level_ != 2 || in_metadata_ || in_array_ || field_ == "dtype") {
            return refuse("an unexpected array");
        }
        in_array_ = true;
        offsets_seen_ = 0;
        return true;
    }
    bool end_array() override {
        in_array_ = false;
        if (field_ == "data_offsets" && offsets_seen_ != 2) {
            return refuse("tensor " + shown(name_) + " does not have two data_offsets");
        }
        return true;
    }

    bool number_unsigned(number_unsigned_t value) override {
        if (!in_array_) return refuse("an unexpected number");
        SafetensorsEntry& entry = header_.entries.back();
        if (field_ == "shape") {
            if (entry.info.shape.size() >= limits::kTensorRank) {
                return refuse("tensor " + shown(name_) + " has too many dimensions");
            }
            entry.info.shape.push_back(value);
            return true;
        }
        if (offsets_seen_ >= 2) return refuse("tensor " + shown(name_) + " has more data_offsets");
        (offsets_seen_++ == 0 ? entry.begin : entry.end) = value;
        return true;
    }

    bool end_object() override {
        if (level_ == 2 && !in_metadata_ && fields_seen_ != 7) {
            return refuse("tensor " + shown(name_) + " lacks dtype, shape or data_offsets");
        }
        --level_;
        name_.clear();
        return true;
    }

  private:
    SafetensorsHeader& header_;
    ErrorKind kind_ = ErrorKind::kCorrupt;
    int level_ = 0;
    bool in_metadata_ = false;
    bool in_array_ = false;
    unsigned fields_seen_ = 0;
    unsigned offsets_seen_ = 0;
    std::string name_;
    std::string field_;
    std::unordered_set<std::string> names_;
};

Result<void> check_offsets(const SafetensorsHeader& header, std::uint64_t data_bytes) {
    std::uint64_t expected = 0;
    for (const SafetensorsEntry& entry : header.entries) {
        const std::string name = shown(entry.info.name);
        if (entry.begin != expected || entry.end < entry.begin) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("tensor {} lies at bytes {} to {} but must start at {}: "
                                    "overlap, hole or wrong order",
                                    name, entry.begin, entry.end, expected));
        }
        auto bytes = byte_count_of(entry.info);
        if (!bytes) return fail(ErrorKind::kCorrupt, bytes.error().text);
        if (*bytes != entry.end - entry.begin) {
            return fail(ErrorKind::kCorrupt,
                        fmt::format("tensor {} is {} {} and needs {} bytes, but {} are given", name,
                                    traits_of(entry.info.dtype).name, shape_text(entry.info.shape),
                                    *bytes, entry.end - entry.begin));
        }
        expected = entry.end;
    }
    if (expected != data_bytes) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("its tensors need {} bytes of data but {} are there: truncated, or "
                                "with bytes behind the end",
                                expected, data_bytes));
    }
    return {};
}

/// `head` holds the header at least; the file has `file_bytes`, or as many as its tensors need.
Result<SafetensorsHeader> parse(std::span<const std::byte> head,
                                std::optional<std::uint64_t> file_bytes) {
    ByteReader in(head);
    const auto header_bytes = in.fixed<std::uint64_t>();
    if (!in.ok()) return fail(ErrorKind::kCorrupt, "it is shorter than the 8 bytes of its length");
    if (header_bytes > limits::kSafetensorsHeaderBytes) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("its header claims {} bytes; at most {} are allowed", header_bytes,
                                limits::kSafetensorsHeaderBytes));
    }
    const std::string_view json = in.text(header_bytes);
    if (!in.ok()) {
        return fail(ErrorKind::kCorrupt, fmt::format("its header claims {} bytes but {} are there",
                                                     header_bytes, head.size() - 8));
    }
    if (json.empty() || json.front() != '{') {
        return fail(ErrorKind::kCorrupt, "its header does not start with '{'");
    }
    // The JSON parser would take a zero byte for the end and pass over what follows.
    if (json.find('\0') != std::string_view::npos) {
        return fail(ErrorKind::kCorrupt, "its header holds a zero byte");
    }
    SafetensorsHeader header;
    HeaderSax sax(header);
    if (!nlohmann::json::sax_parse(json.begin(), json.end(), &sax)) {
        return fail(sax.kind(), "its header has " + sax.problem());
    }
    header.data_offset = 8 + header_bytes;
    // Empty tensors share their neighbour's offset; the end keeps them before it.
    std::ranges::stable_sort(header.entries, [](const auto& x, const auto& y) {
        return x.begin != y.begin ? x.begin < y.begin : x.end < y.end;
    });
    const std::uint64_t needed = header.entries.empty() ? 0 : header.entries.back().end;
    WISP_TRY(check_offsets(header, file_bytes ? *file_bytes - header.data_offset : needed));
    return header;
}

std::string json_string(std::string_view text) {
    return nlohmann::json(text).dump();
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
    const auto at = std::ranges::find(
        entries, name, [](const auto& entry) -> std::string_view { return entry.info.name; });
    return at == entries.end() ? nullptr : &*at;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                            std::string_view label) {
    return parse_safetensors_head(file, file.size(), label);
}

Result<SafetensorsHeader> parse_safetensors_head(std::span<const std::byte> head,
                                                 std::optional<std::uint64_t> file_bytes,
                                                 std::string_view label) {
    auto header = parse(head, file_bytes);
    if (!header) {
        Error error = std::move(header).error();
        if (const auto other = recognise_format(head); other) {
            return fail(ErrorKind::kInvalid, fmt::format("{} is {}, not safetensors; {}",
                                                         shown(label), other->name, other->cure));
        }
        const char* cure = error.kind == ErrorKind::kUnsupported ? "upgrade wisp"
                                                                 : "fetch or write the file again";
        return fail(error.kind, fmt::format("{} is not a valid safetensors file: {}; {}",
                                            shown(label), error.text, cure));
    }
    return header;
}

Bytes write_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const Metadata& metadata, std::string_view first_key) {
    std::string json = "{";
    if (!metadata.empty()) {
        json += "\"__metadata__\":{";
        std::string separator;
        const auto write_pair = [&](const std::string& key, const std::string& value) {
            json += separator + json_string(key) + ":" + json_string(value);
            separator = ",";
        };
        const auto first = metadata.find(std::string(first_key));
        if (first != metadata.end()) write_pair(first->first, first->second);
        for (const auto& [key, value] : metadata) {
            if (key != first_key) write_pair(key, value);
        }
        json += "}";
    }
    for (const SafetensorsEntry& entry : entries) {
        if (json.size() > 1) json += ",";
        json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                            json_string(entry.info.name), traits_of(entry.info.dtype).name,
                            fmt::join(entry.info.shape, ","), entry.begin, entry.end);
    }
    json += "}";
    json.resize((json.size() + 7) / 8 * 8, ' ');
    Bytes header;
    append_fixed(header, std::uint64_t{json.size()});
    append_text(header, json);
    return header;
}

}  // namespace wisp
