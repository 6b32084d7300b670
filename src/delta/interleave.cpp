#include "delta/interleave.hpp"

#include <string>

#include "base/limits.hpp"
#include "base/try.hpp"

namespace wisp {
namespace {

constexpr std::string_view kMark = "wisp interleave 1";
constexpr std::uint8_t kOpenSeal = 1;

std::unexpected<Error> broken(const std::string& what) {
    return fail(ErrorKind::kCorrupt, "interleaved file: " + what);
}

/// How many bytes the segments have together, after the record.
Result<std::uint64_t> parse_segments(ByteReader& in, InterleaveTable& table) {
    const std::uint64_t segments = in.varint();
    if (!in.ok() || segments == 0 || segments > limits::kInterleaveSegments ||
        segments > in.remaining()) {
        return broken("no segments, or more than can be there");
    }
    std::uint64_t total = 0;
    table.segment_bytes.reserve(static_cast<std::size_t>(segments));
    for (std::uint64_t i = 0; i < segments; ++i) {
        const std::uint64_t bytes = in.varint();
        if (!in.ok() || bytes == 0) return broken("a segment of no bytes");
        if (__builtin_add_overflow(total, bytes, &total)) return broken("segments that overflow");
        table.segment_bytes.push_back(bytes);
    }
    return total;
}

Result<void> parse_extents(ByteReader& in, InterleaveTable& table) {
    const std::uint64_t extents = in.varint();
    if (!in.ok() || extents > limits::kInterleaveExtents || extents > in.remaining() / 2) {
        return broken("more extents than can be there");
    }
    std::vector<std::uint64_t> left = table.segment_bytes;
    table.extents.reserve(static_cast<std::size_t>(extents));
    for (std::uint64_t i = 0; i < extents; ++i) {
        const Extent extent{in.varint(), in.varint()};
        if (!in.ok() || extent.segment >= left.size())
            return broken("an extent of an unknown segment");
        if (extent.bytes == 0) return broken("an extent of no bytes");
        if (i > 0 && table.extents.back().segment == extent.segment)
            return broken("an extent cut in two");
        if (extent.bytes > left[extent.segment])
            return broken("an extent past the end of its segment");
        left[extent.segment] -= extent.bytes;
        table.extents.push_back(extent);
    }
    for (const std::uint64_t bytes : left) {
        if (bytes != 0) return broken("bytes that no extent uses");
    }
    return {};
}

}  // namespace

void InterleaveTable::add(std::uint64_t segment, std::uint64_t bytes) {
    if (bytes == 0) return;
    if (segment >= segment_bytes.size())
        segment_bytes.resize(static_cast<std::size_t>(segment) + 1);
    segment_bytes[static_cast<std::size_t>(segment)] += bytes;
    if (!extents.empty() && extents.back().segment == segment) {
        extents.back().bytes += bytes;
    } else {
        extents.push_back({segment, bytes});
    }
}

Bytes write_interleave_table(const InterleaveTable& table) {
    Bytes out;
    append_text(out, kMark);
    append_fixed<std::uint8_t>(out, table.open_seal ? kOpenSeal : 0);
    append_varint(out, table.segment_bytes.size());
    for (const std::uint64_t bytes : table.segment_bytes) append_varint(out, bytes);
    append_varint(out, table.extents.size());
    for (const Extent& extent : table.extents) {
        append_varint(out, extent.segment);
        append_varint(out, extent.bytes);
    }
    return out;
}

Result<ParsedInterleave> parse_interleaved(std::span<const std::byte> interleaved) {
    ByteReader in(interleaved);
    ParsedInterleave parsed;
    if (in.text(kMark.size()) != kMark) return broken("no mark of one");
    const auto flags = in.fixed<std::uint8_t>();
    if (in.ok() && flags > kOpenSeal) {
        return fail(ErrorKind::kUnsupported, "interleaved file: unknown flags; upgrade wisp");
    }
    parsed.table.open_seal = flags == kOpenSeal;
    WISP_ASSIGN(parsed.file_bytes, parse_segments(in, parsed.table));
    WISP_TRY(parse_extents(in, parsed.table));
    parsed.record_bytes = interleaved.size() - in.remaining();
    if (parsed.file_bytes != in.remaining())
        return broken("segments of another length than it says");
    return parsed;
}

}  // namespace wisp
