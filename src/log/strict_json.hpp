// Small JSON records of the protocol: parsed strictly, read field by field with sticky errors.
//
// Refused: duplicate keys, nesting deeper than limits::kJsonDepth, fractions, negative numbers
// where none belong, zero bytes, broken UTF-8, trailing bytes. Unknown keys are passed over; what
// a reader must understand is named in a record's "must" (doc/protocol.md section 3).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "wisp/result.hpp"
#include "wisp/state.hpp"

namespace wisp {

/// kCorrupt, without a label.
Result<nlohmann::json> parse_strict_json(std::string_view text);

/// Reads the fields of one object; after the first that is missing or of another type it yields
/// empty values, and problem() says which.
class FieldReader {
  public:
    /// `problem` is shared by the readers of nested objects and must outlive them.
    FieldReader(const nlohmann::json& object, std::string& problem);

    bool ok() const { return problem_->empty(); }
    bool has(const char* name) const;
    std::string text(const char* name);
    std::uint64_t number(const char* name);
    std::int64_t time(const char* name);
    bool flag(const char* name);
    /// Lower-case hexadecimal digits, exactly `digits` of them.
    std::string hex(const char* name, std::size_t digits);
    StateDigest digest(const char* name);
    FieldReader object(const char* name);
    /// An array of at most `limit` elements; empty when absent.
    const nlohmann::json& array(const char* name, std::size_t limit);
    FieldReader element(const nlohmann::json& value) { return FieldReader(value, *problem_); }
    void refuse(std::string why);

  private:
    const nlohmann::json* find(const char* name);
    const nlohmann::json* object_;
    std::string* problem_;
};

}  // namespace wisp
