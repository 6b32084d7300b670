#include "log/strict_json.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "base/limits.hpp"
#include "base/text.hpp"

namespace wisp {
namespace {

const nlohmann::json kEmptyObject = nlohmann::json::object();
const nlohmann::json kEmptyArray = nlohmann::json::array();

/// Watches the parse for what the library itself would let pass.
class Watch {
  public:
    bool operator()(int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
        using Event = nlohmann::json::parse_event_t;
        switch (event) {
            case Event::object_start:
            case Event::array_start:
                if (static_cast<unsigned>(depth) >= limits::kJsonDepth)
                    refuse("too deep a nesting");
                keys_.emplace_back();
                break;
            case Event::object_end:
            case Event::array_end:
                if (!keys_.empty()) keys_.pop_back();
                break;
            case Event::key: {
                const auto& key = parsed.get_ref<const std::string&>();
                if (!keys_.empty() && !keys_.back().insert(key).second) {
                    refuse("the key " + shown(key) + " twice");
                }
                break;
            }
            case Event::value:
                if (parsed.is_number_float()) refuse("a number that is not whole");
                break;
        }
        // Nothing more is built once something was refused.
        return problem_.empty();
    }
    const std::string& problem() const { return problem_; }

  private:
    void refuse(std::string why) {
        if (problem_.empty()) problem_ = std::move(why);
    }
    std::vector<std::set<std::string>> keys_;
    std::string problem_;
};

}  // namespace

Result<nlohmann::json> parse_strict_json(std::string_view text) {
    if (text.find('\0') != std::string_view::npos) return fail(ErrorKind::kCorrupt, "a zero byte");
    Watch watch;
    nlohmann::json parsed = nlohmann::json::parse(
        text.begin(), text.end(),
        [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
            return watch(depth, event, value);
        },
        false);
    if (!watch.problem().empty()) return fail(ErrorKind::kCorrupt, watch.problem());
    if (parsed.is_discarded()) return fail(ErrorKind::kCorrupt, "text that is not valid JSON");
    if (!parsed.is_object()) return fail(ErrorKind::kCorrupt, "something else than an object");
    return parsed;
}

FieldReader::FieldReader(const nlohmann::json& object, std::string& problem)
    : object_(&object), problem_(&problem) {
    if (!object.is_object()) {
        refuse("something else where an object belongs");
        object_ = &kEmptyObject;
    }
}

bool FieldReader::has(const char* name) const {
    return object_->contains(name);
}

const nlohmann::json* FieldReader::find(const char* name) {
    const auto at = object_->find(name);
    if (at != object_->end()) return &*at;
    refuse(std::string("no \"") + name + "\"");
    return nullptr;
}

std::string FieldReader::text(const char* name) {
    const nlohmann::json* value = find(name);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    refuse(std::string("a \"") + name + "\" that is not text");
    return {};
}

std::uint64_t FieldReader::number(const char* name) {
    const nlohmann::json* value = find(name);
    if (value == nullptr) return 0;
    if (value->is_number_unsigned()) return value->get<std::uint64_t>();
    refuse(std::string("a \"") + name + "\" that is not a whole number");
    return 0;
}

std::int64_t FieldReader::time(const char* name) {
    constexpr std::uint64_t kLatest = 1ULL << 53;  // some 285,000 years from now
    const std::uint64_t value = number(name);
    if (value <= kLatest) return static_cast<std::int64_t>(value);
    refuse(std::string("a \"") + name + "\" beyond all time");
    return 0;
}

bool FieldReader::flag(const char* name) {
    const nlohmann::json* value = find(name);
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    refuse(std::string("a \"") + name + "\" that is neither true nor false");
    return false;
}

std::string FieldReader::hex(const char* name, std::size_t digits) {
    std::string value = text(name);
    const bool good = value.size() == digits && std::ranges::all_of(value, [](char c) {
                          return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                      });
    if (good) return value;
    refuse(std::string("a \"") + name + "\" that is not " + std::to_string(digits) +
           " hexadecimal digits");
    return {};
}

StateDigest FieldReader::digest(const char* name) {
    const auto digest = parse_digest(text(name));
    if (digest) return *digest;
    refuse(std::string("a \"") + name + "\" that is not a state digest");
    return {};
}

FieldReader FieldReader::object(const char* name) {
    const nlohmann::json* value = find(name);
    return FieldReader(value == nullptr ? kEmptyObject : *value, *problem_);
}

const nlohmann::json& FieldReader::array(const char* name, std::size_t limit) {
    const auto at = object_->find(name);
    if (at == object_->end()) return kEmptyArray;
    if (!at->is_array()) {
        refuse(std::string("a \"") + name + "\" that is not a list");
        return kEmptyArray;
    }
    if (at->size() > limit) {
        refuse(std::string("more than ") + std::to_string(limit) + " entries in \"" + name + "\"");
        return kEmptyArray;
    }
    return *at;
}

void FieldReader::refuse(std::string why) {
    if (problem_->empty()) *problem_ = std::move(why);
}

}  // namespace wisp
