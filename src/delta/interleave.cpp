#include "delta/interleave.hpp"

#include <string>

#include "base/limits.hpp"
#include "base/try.hpp"

namespace wisp {
namespace {

constexpr std::string_view kMark = "wisp weave 1";
constexpr std::uint8_t kOpenSeal = 1;

std::unexpected<Error> broken(const std::string& what) {
    return fail(ErrorKind::kCorrupt, "weave: " + what);
}

/// How many bytes the strands have together, after the record.
Result<std::uint64_t> parse_strands(ByteReader& in, Weave& weave) {
    const std::uint64_t strands = in.varint();
    if (!in.ok() || strands == 0 || strands > limits::kWeaveStrands || strands > in.remaining()) {
        return broken("no strands, or more than can be there");
    }
    std::uint64_t total = 0;
    weave.strand_bytes.reserve(static_cast<std::size_t>(strands));
    for (std::uint64_t i = 0; i < strands; ++i) {
        const std::uint64_t bytes = in.varint();
        if (!in.ok() || bytes == 0) return broken("a strand of no bytes");
        if (__builtin_add_overflow(total, bytes, &total)) return broken("strands that overflow");
        weave.strand_bytes.push_back(bytes);
    }
    return total;
}

Result<void> parse_runs(ByteReader& in, Weave& weave) {
    const std::uint64_t runs = in.varint();
    if (!in.ok() || runs > limits::kWeaveRuns || runs > in.remaining() / 2) {
        return broken("more runs than can be there");
    }
    std::vector<std::uint64_t> left = weave.strand_bytes;
    weave.runs.reserve(static_cast<std::size_t>(runs));
    for (std::uint64_t i = 0; i < runs; ++i) {
        const WeaveRun run{in.varint(), in.varint()};
        if (!in.ok() || run.strand >= left.size()) return broken("a run of an unknown strand");
        if (run.bytes == 0) return broken("a run of no bytes");
        if (i > 0 && weave.runs.back().strand == run.strand) return broken("a run cut in two");
        if (run.bytes > left[run.strand]) return broken("a run past the end of its strand");
        left[run.strand] -= run.bytes;
        weave.runs.push_back(run);
    }
    for (const std::uint64_t bytes : left) {
        if (bytes != 0) return broken("bytes that no run uses");
    }
    return {};
}

}  // namespace

void Weave::add(std::uint64_t strand, std::uint64_t bytes) {
    if (bytes == 0) return;
    if (strand >= strand_bytes.size()) strand_bytes.resize(static_cast<std::size_t>(strand) + 1);
    strand_bytes[static_cast<std::size_t>(strand)] += bytes;
    if (!runs.empty() && runs.back().strand == strand) {
        runs.back().bytes += bytes;
    } else {
        runs.push_back({strand, bytes});
    }
}

Bytes write_weave(const Weave& weave) {
    Bytes out;
    append_text(out, kMark);
    append_fixed<std::uint8_t>(out, weave.open_seal ? kOpenSeal : 0);
    append_varint(out, weave.strand_bytes.size());
    for (const std::uint64_t bytes : weave.strand_bytes) append_varint(out, bytes);
    append_varint(out, weave.runs.size());
    for (const WeaveRun& run : weave.runs) {
        append_varint(out, run.strand);
        append_varint(out, run.bytes);
    }
    return out;
}

Result<ParsedWeave> parse_weave(std::span<const std::byte> woven) {
    ByteReader in(woven);
    ParsedWeave parsed;
    if (in.text(kMark.size()) != kMark) return broken("no mark of one");
    const auto flags = in.fixed<std::uint8_t>();
    if (in.ok() && flags > kOpenSeal) {
        return fail(ErrorKind::kUnsupported, "weave: unknown flags; upgrade wisp");
    }
    parsed.weave.open_seal = flags == kOpenSeal;
    WISP_ASSIGN(parsed.file_bytes, parse_strands(in, parsed.weave));
    WISP_TRY(parse_runs(in, parsed.weave));
    parsed.record_bytes = woven.size() - in.remaining();
    if (parsed.file_bytes != in.remaining())
        return broken("strands of another length than it says");
    return parsed;
}

}  // namespace wisp
