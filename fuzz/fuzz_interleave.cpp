// Any bytes as a woven file, and as a rank's slip: what is taken adds up, what is refused is
// refused by the kinds that are promised.
#include "checkpoint/blocks.hpp"
#include "delta/interleave.hpp"
#include "fuzz_input.hpp"
#include "publish/sharded/shard_manifest.hpp"

using namespace wisp;

namespace {

void check_weave(std::span<const std::byte> bytes) {
    const auto parsed = parse_weave(bytes);
    if (!parsed) {
        FUZZ_CHECK(parsed.error().kind == ErrorKind::kCorrupt ||
                   parsed.error().kind == ErrorKind::kUnsupported);
        return;
    }
    FUZZ_CHECK(parsed->record_bytes + parsed->file_bytes == bytes.size());
    std::vector<std::uint64_t> used(parsed->weave.strand_bytes.size());
    for (const WeaveRun& run : parsed->weave.runs) used[run.strand] += run.bytes;
    FUZZ_CHECK(used == parsed->weave.strand_bytes);
    const Bytes again = write_weave(parsed->weave);
    FUZZ_CHECK(std::ranges::equal(again, bytes.first(again.size())));
}

void check_slip(std::span<const std::byte> bytes) {
    static const Schema schema = *Schema::make(
        {{"a", Dtype::kBf16, {300}}, {"b", Dtype::kF32, {64}}, {"c", Dtype::kI64, {}}});
    for (const ShardPart part : {ShardPart::kDelta, ShardPart::kWhole, ShardPart::kAnchor}) {
        const ShardCall call{part, 7, 1, {1, 2}};
        const auto slip = parse_slip(bytes, schema, call);
        if (!slip) {
            FUZZ_CHECK(slip.error().kind == ErrorKind::kInvalid);
            continue;
        }
        const BlockGrid grid(schema, slip->log2_block_elements);
        std::uint64_t blocks = 0;
        for (const BlockSpan& span : slip->spans) blocks += span.block_count;
        FUZZ_CHECK(blocks <= grid.count());
        FUZZ_CHECK(part != ShardPart::kDelta || slip->blocks.size() == blocks);
        FUZZ_CHECK(write_slip(*slip) == Bytes(bytes.begin(), bytes.end()));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    check_weave(bytes);
    check_slip(bytes);
    (void)parse_call(as_text(bytes));
    return 0;
}
