#include "store/s3/wire_range.hpp"

#include "base/decimal.hpp"

namespace wisp {

std::optional<ContentRange> parse_content_range(std::string_view text) {
    const auto slash = text.find('/');
    if (!text.starts_with("bytes ") || slash == std::string_view::npos) return std::nullopt;
    const std::string_view range = text.substr(6, slash - 6);
    const std::string_view total = text.substr(slash + 1);
    ContentRange out;
    out.total = whole_number(total);
    if (!out.total && (total != "*" || range == "*")) return std::nullopt;
    if (range == "*") return out;
    const auto dash = range.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    out.first = whole_number(range.substr(0, dash));
    const auto last = whole_number(range.substr(dash + 1));
    if (!out.first || !last || *last < *out.first) return std::nullopt;
    // The object's size is more than any position in it, and has to fit too.
    if (*last >= out.total.value_or(UINT64_MAX)) return std::nullopt;
    out.length = *last - *out.first + 1;
    return out;
}

}  // namespace wisp
