// Any bytes as an interleaved file, and as a rank's shard manifest: what is taken adds up, what is
// refused is refused by the kinds that are promised.
#include "checkpoint/blocks.hpp"
#include "delta/interleave.hpp"
#include "fuzz_input.hpp"
#include "publish/sharded/shard_manifest.hpp"

using namespace wisp;

namespace {

void check_interleaved(std::span<const std::byte> bytes) {
    const auto parsed = parse_interleaved(bytes);
    if (!parsed) {
        FUZZ_CHECK(parsed.error().kind == ErrorKind::kCorrupt ||
                   parsed.error().kind == ErrorKind::kUnsupported);
        return;
    }
    FUZZ_CHECK(parsed->record_bytes + parsed->file_bytes == bytes.size());
    std::vector<std::uint64_t> used(parsed->table.segment_bytes.size());
    for (const Extent& extent : parsed->table.extents) used[extent.segment] += extent.bytes;
    FUZZ_CHECK(used == parsed->table.segment_bytes);
    const Bytes again = write_interleave_table(parsed->table);
    FUZZ_CHECK(std::ranges::equal(again, bytes.first(again.size())));
}

void check_shard_manifest(std::span<const std::byte> bytes) {
    static const Schema schema = *Schema::make(
        {{"a", Dtype::kBf16, {300}}, {"b", Dtype::kF32, {64}}, {"c", Dtype::kI64, {}}});
    for (const ShardPart part : {ShardPart::kDelta, ShardPart::kWhole, ShardPart::kAnchor}) {
        const ShardCall call{part, 7, 1, {1, 2}};
        const auto manifest = parse_shard_manifest(bytes, schema, call);
        if (!manifest) {
            FUZZ_CHECK(manifest.error().kind == ErrorKind::kInvalid);
            continue;
        }
        const BlockGrid grid(schema, manifest->log2_block_elements);
        std::uint64_t blocks = 0;
        for (const BlockSpan& span : manifest->spans) blocks += span.block_count;
        FUZZ_CHECK(blocks <= grid.count());
        FUZZ_CHECK(part != ShardPart::kDelta || manifest->blocks.size() == blocks);
        FUZZ_CHECK(write_shard_manifest(*manifest) == Bytes(bytes.begin(), bytes.end()));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    check_interleaved(bytes);
    check_shard_manifest(bytes);
    (void)parse_call(as_text(bytes));
    return 0;
}
