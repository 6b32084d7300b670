#include "store/store_keys.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "base/try.hpp"
#include "wisp/result.hpp"

namespace wisp {
namespace {

constexpr std::size_t kLongestKey = 900;
/// Most objects that are read whole are smaller than this: one request instead of two.
constexpr std::uint64_t kFirstReadBytes = 1 << 16;

Error refused(std::string_view key, std::string_view why) {
    return {ErrorKind::kInvalid,
            fmt::format("object name {} {}; choose another name", shown(key), why)};
}

Result<void> check_text(std::string_view key) {
    if (key.size() > kLongestKey) {
        return std::unexpected(
            refused(key, fmt::format("has {} bytes, {} are allowed", key.size(), kLongestKey)));
    }
    // What has to be escaped is exactly what is refused: controls and broken UTF-8.
    if (printable(key) != key) {
        return std::unexpected(refused(key, "holds control characters or broken UTF-8"));
    }
    return {};
}

Result<void> check_parts(std::string_view key) {
    for (std::string_view rest = key;;) {
        const std::size_t slash = rest.find('/');
        const std::string_view part = rest.substr(0, slash);
        if (part.empty() || part == "." || part == "..") {
            return std::unexpected(refused(key, "has an empty, '.' or '..' part"));
        }
        if (slash == std::string_view::npos) return {};
        rest.remove_prefix(slash + 1);
    }
}

}  // namespace

Result<void> check_key(std::string_view key) {
    WISP_TRY(check_text(key));
    return check_parts(key);
}

Result<void> check_prefix(std::string_view prefix) {
    WISP_TRY(check_text(prefix));
    const std::size_t slash = prefix.rfind('/');
    // The last part may still grow: "a/.." begins "a/..b".
    return slash == std::string_view::npos ? Result<void>() : check_parts(prefix.substr(0, slash));
}

Error no_such_object(std::string_view key) {
    return {ErrorKind::kNotFound, fmt::format("no object {}", shown(key))};
}

Result<std::vector<std::byte>> read_whole(Store& store, const std::string& key,
                                          std::uint64_t limit) {
    // Each try is one read, so that an object replaced meanwhile is never a mixture of two.
    std::uint64_t room = std::min(limit, kFirstReadBytes);
    for (;;) {
        std::vector<std::byte> bytes(room + 1);
        WISP_ASSIGN(const std::size_t count, store.read(key, 0, bytes));
        if (count <= room) {
            bytes.resize(count);
            return bytes;
        }
        if (room == limit) break;
        WISP_ASSIGN(const ObjectInfo info, store.head(key));
        if (info.size_bytes > limit) break;
        // Twice the room at least: an object that keeps growing must not hold us here.
        room = std::min(limit, std::max(info.size_bytes, 2 * room));
    }
    return fail(ErrorKind::kCorrupt,
                fmt::format("object {} is larger than the {} bytes expected", shown(key), limit));
}

}  // namespace wisp
