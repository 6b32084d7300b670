#include "log/checked_line.hpp"

#include "base/bytes.hpp"
#include "base/sha256.hpp"

namespace wisp {
namespace {

constexpr std::string_view kOpening = ",\"check\":\"";
constexpr std::string_view kClosing = "\"}\n";
constexpr std::string_view kPlainClosing = "}\n";
constexpr std::size_t kDigits = 16;
constexpr std::size_t kSuffix = kOpening.size() + kDigits + kClosing.size();

std::string digits_of(std::string_view members) {
    Sha256 hash;
    hash.add(as_bytes(members)).add(as_bytes(kPlainClosing));
    return to_hex(hash.finish()).substr(0, kDigits);
}

}  // namespace

std::string with_check(std::string_view line) {
    const std::string_view members = line.substr(0, line.size() - kPlainClosing.size());
    return std::string(members) + std::string(kOpening) + digits_of(members) +
           std::string(kClosing);
}

bool check_holds(std::string_view line) {
    if (line.size() <= kSuffix || !line.ends_with(kClosing)) return false;
    const std::string_view members = line.substr(0, line.size() - kSuffix);
    const std::string_view suffix = line.substr(members.size());
    return suffix.starts_with(kOpening) &&
           suffix.substr(kOpening.size(), kDigits) == digits_of(members);
}

}  // namespace wisp
