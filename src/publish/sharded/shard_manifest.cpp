#include "publish/sharded/shard_manifest.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/blocks.hpp"
#include "log/run_keys.hpp"
#include "log/strict_json.hpp"

namespace wisp {
namespace {

constexpr std::string_view kMark = "wisp shard manifest 1";
constexpr std::size_t kSchemaDigits = 32;
constexpr std::size_t kHashBytes = 32;
constexpr std::uint64_t kLongestKey = 256;

std::unexpected<Error> broken(const std::string& what) {
    return fail(ErrorKind::kInvalid, "shard manifest: " + what);
}

void append_digest(Bytes& out, const StateDigest& digest) {
    append_fixed(out, digest.a);
    append_fixed(out, digest.b);
}

StateDigest take_digest(ByteReader& in) {
    StateDigest digest;
    digest.a = in.fixed<std::uint64_t>();
    digest.b = in.fixed<std::uint64_t>();
    return digest;
}

ShardCall take_call(ByteReader& in) {
    ShardCall call;
    call.part = static_cast<ShardPart>(in.fixed<std::uint8_t>());
    call.step = in.varint();
    call.epoch = in.varint();
    call.base = take_digest(in);
    call.codec = static_cast<Codec>(in.fixed<std::uint8_t>());
    return call;
}

Result<void> take_blocks(ByteReader& in, const Schema& schema, ShardManifest& manifest) {
    const std::uint64_t spans = in.varint();
    if (!in.ok() || spans > in.remaining() / 3) return broken("it ends inside its spans");
    manifest.spans.reserve(static_cast<std::size_t>(spans));
    for (std::uint64_t i = 0; i < spans; ++i) {
        manifest.spans.push_back({in.varint(), in.varint(), in.varint()});
    }
    if (!in.ok()) return broken("it ends inside its spans");
    WISP_ASSIGN(const std::uint64_t blocks,
                count_blocks(manifest.spans, schema, manifest.log2_block_elements));
    if (manifest.call.part != ShardPart::kDelta) return {};
    if (blocks > in.remaining() / 2) return broken("it ends inside its blocks");
    const std::uint64_t most = std::uint64_t{1} << manifest.log2_block_elements;
    manifest.blocks.reserve(static_cast<std::size_t>(blocks));
    for (std::uint64_t i = 0; i < blocks; ++i) {
        manifest.blocks.push_back({in.varint(), in.varint()});
        const ManifestBlock& block = manifest.blocks.back();
        if (!in.ok() || block.changed > most || (block.changed == 0) != (block.bytes == 0)) {
            return broken("a block whose counts cannot be");
        }
    }
    return {};
}

/// A key has to be the one that this object must have: nothing else may be brought into the log.
Result<void> take_parts(ByteReader& in, ShardManifest& manifest) {
    const std::uint64_t parts = in.varint();
    if (!in.ok() || parts > limits::kPartsPerFile) return broken("too many parts");
    for (std::uint64_t i = 0; i < parts; ++i) {
        const std::uint64_t length = in.varint();
        if (!in.ok() || length > kLongestKey) return broken("a key that is too long");
        StoredPart part;
        part.key = in.text(length);
        part.bytes = in.varint();
        const auto hash = in.take(kHashBytes);
        if (!in.ok()) return broken("it ends inside its parts");
        part.sha256 = to_hex(as_text(hash));
        const ObjectName name{manifest.call.step,
                              manifest.call.epoch,
                              part.sha256,
                              {static_cast<std::size_t>(i), static_cast<std::size_t>(parts)}};
        const bool delta = manifest.call.part == ShardPart::kDelta;
        if (part.key != (delta ? delta_segment_key(name) : anchor_segment_key(name))) {
            return broken("the key " + shown(part.key) + " is not the one of its object");
        }
        manifest.parts.push_back(std::move(part));
    }
    return {};
}

Result<void> check_size(const ShardManifest& manifest, const Schema& schema) {
    std::uint64_t wanted = 0;
    if (manifest.call.part != ShardPart::kDelta) {
        wanted = plain_bytes(manifest.spans, schema, manifest.log2_block_elements);
    }
    for (const ManifestBlock& block : manifest.blocks) {
        if (__builtin_add_overflow(wanted, block.bytes, &wanted)) return broken("blocks overflow");
    }
    std::uint64_t there = manifest.payload.size();
    for (const StoredPart& part : manifest.parts) {
        if (part.bytes == 0 || __builtin_add_overflow(there, part.bytes, &there)) {
            return broken("parts of no bytes, or too many");
        }
    }
    if (!manifest.payload.empty() && !manifest.parts.empty())
        return broken("a payload beside parts");
    if (there == wanted) return {};
    return broken(fmt::format("its blocks have {} bytes, its parts {}", wanted, there));
}

}  // namespace

std::string write_call(const ShardCall& call) {
    const nlohmann::ordered_json json = {{"wisp", "call"},
                                         {"part", static_cast<unsigned>(call.part)},
                                         {"step", call.step},
                                         {"epoch", call.epoch},
                                         {"base", to_text(call.base)},
                                         {"codec", name_of(call.codec)}};
    return json.dump() + "\n";
}

Result<ShardCall> parse_call(std::string_view text) {
    if (text.size() > limits::kSmallRecordBytes) return broken("a call that is too long");
    auto json = parse_strict_json(text);
    if (!json) return broken("a call with " + json.error().text);
    std::string problem;
    FieldReader in(*json, problem);
    ShardCall call;
    const std::uint64_t part = in.number("part");
    if (in.text("wisp") != "call" || part > static_cast<unsigned>(ShardPart::kAnchor)) {
        in.refuse("no mark of one");
    }
    call.part = static_cast<ShardPart>(part);
    call.step = in.number("step");
    call.epoch = in.number("epoch");
    call.base = in.digest("base");
    const auto codec = parse_codec(in.text("codec"));
    if (!codec || !holds_blocks(*codec)) in.refuse("an unknown codec");
    call.codec = codec.value_or(kDefaultCodec);
    if (!problem.empty()) return broken("a call with " + problem);
    return call;
}

std::uint64_t ShardManifest::uploaded_bytes() const {
    std::uint64_t total = payload.size();
    for (const StoredPart& part : parts) total += part.bytes;
    return total;
}

Result<std::uint64_t> count_blocks(const std::vector<BlockSpan>& spans, const Schema& schema,
                                   unsigned log2_block_elements) {
    std::uint64_t total = 0;
    const BlockSpan* last = nullptr;
    for (const BlockSpan& span : spans) {
        if (span.tensor >= schema.tensors().size()) return broken("a span of no tensor");
        const std::uint64_t blocks = block_count_of(
            element_count_of(schema.tensors()[static_cast<std::size_t>(span.tensor)]),
            log2_block_elements);
        if (span.block_count == 0 || span.first_block >= blocks ||
            span.block_count > blocks - span.first_block) {
            return broken("a span of blocks that the tensor does not have");
        }
        const bool ascends = last == nullptr || last->tensor < span.tensor ||
                             (last->tensor == span.tensor &&
                              last->first_block + last->block_count <= span.first_block);
        if (!ascends) return broken("spans that do not ascend");
        last = &span;
        total += span.block_count;
    }
    return total;
}

std::uint64_t plain_bytes(const std::vector<BlockSpan>& spans, const Schema& schema,
                          unsigned log2_block_elements) {
    std::uint64_t total = 0;
    for (const BlockSpan& span : spans) {
        const TensorInfo& tensor = schema.tensors()[static_cast<std::size_t>(span.tensor)];
        const std::uint64_t first = span.first_block << log2_block_elements;
        const std::uint64_t end = (span.first_block + span.block_count) << log2_block_elements;
        total += (std::min(end, element_count_of(tensor)) - first) *
                 traits_of(tensor.dtype).element_bytes;
    }
    return total;
}

Bytes write_shard_manifest(const ShardManifest& manifest) {
    Bytes out;
    append_text(out, kMark);
    append_varint(out, manifest.rank);
    append_fixed(out, static_cast<std::uint8_t>(manifest.call.part));
    append_varint(out, manifest.call.step);
    append_varint(out, manifest.call.epoch);
    append_digest(out, manifest.call.base);
    append_fixed(out, static_cast<std::uint8_t>(manifest.call.codec));
    append_text(out, manifest.schema);
    append_varint(out, manifest.log2_block_elements);
    append_varint(out, manifest.spans.size());
    for (const BlockSpan& span : manifest.spans) {
        append_varint(out, span.tensor);
        append_varint(out, span.first_block);
        append_varint(out, span.block_count);
    }
    for (const ManifestBlock& block : manifest.blocks) {
        append_varint(out, block.bytes);
        append_varint(out, block.changed);
    }
    append_digest(out, manifest.state);
    append_digest(out, manifest.touched_before);
    append_digest(out, manifest.touched_after);
    append_varint(out, manifest.parts.size());
    for (const StoredPart& part : manifest.parts) {
        append_varint(out, part.key.size());
        append_text(out, part.key);
        append_varint(out, part.bytes);
        Bytes hash(kHashBytes);
        (void)from_hex(part.sha256, hash);
        out.insert(out.end(), hash.begin(), hash.end());
    }
    append_varint(out, manifest.payload.size());
    out.insert(out.end(), manifest.payload.begin(), manifest.payload.end());
    return out;
}

Result<ShardManifest> parse_shard_manifest(std::span<const std::byte> bytes, const Schema& schema,
                                           const ShardCall& call) {
    if (bytes.size() > limits::kShardManifestBytes) return broken("it is too long");
    ByteReader in(bytes);
    if (in.text(kMark.size()) != kMark) return broken("no mark of one");
    ShardManifest manifest;
    manifest.rank = in.varint();
    manifest.call = take_call(in);
    manifest.schema = in.text(kSchemaDigits);
    const std::uint64_t log2 = in.varint();
    if (!in.ok()) return broken("it ends too early");
    if (manifest.call != call) return broken("the answer to another call");
    if (manifest.schema != schema.digest()) {
        return broken("another schema: names, dtypes or shapes differ between ranks");
    }
    if (log2 < limits::kMinLog2BlockElements || log2 > limits::kMaxLog2BlockElements) {
        return broken("a block size out of range");
    }
    manifest.log2_block_elements = static_cast<unsigned>(log2);
    WISP_TRY(take_blocks(in, schema, manifest));
    manifest.state = take_digest(in);
    manifest.touched_before = take_digest(in);
    manifest.touched_after = take_digest(in);
    WISP_TRY(take_parts(in, manifest));
    const auto payload = in.take(in.varint());
    if (!in.ok() || !in.at_end()) return broken("it does not end where it should");
    manifest.payload.assign(payload.begin(), payload.end());
    WISP_TRY(check_size(manifest, schema));
    return manifest;
}

}  // namespace wisp
