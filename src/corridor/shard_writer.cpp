// One rank of a sharded trainer: its blocks, coded and uploaded.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/blocks.hpp"
#include "base/file.hpp"
#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "base/stopwatch.hpp"
#include "base/try.hpp"
#include "corridor/checkpoint_files.hpp"
#include "corridor/delta_writer.hpp"
#include "corridor/owned_file.hpp"
#include "corridor/pending_folder.hpp"
#include "decode/block_decoder.hpp"
#include "format/run_keys.hpp"
#include "format/shard_slip.hpp"
#include "kernel/kernels.hpp"
#include "kernel/scatter.hpp"
#include "publish/uploader.hpp"
#include "wisp/shard.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

using Views = std::vector<std::span<const std::byte>>;

/// A block of this rank, and where in the bytes of its span it lies.
struct OwnBlock {
    BlockRange range;
    std::size_t span = 0;
    std::size_t offset = 0;

    std::size_t size() const {
        return static_cast<std::size_t>(range.element_count * range.element_bytes);
    }
    std::span<const std::byte> of(std::span<const std::byte> span_bytes) const {
        return span_bytes.subspan(offset, size());
    }
};

std::vector<OwnBlock> blocks_of(const Schema& schema, const std::vector<BlockSpan>& spans,
                                unsigned log2) {
    std::vector<OwnBlock> blocks;
    for (std::size_t i = 0; i < spans.size(); ++i) {
        const TensorInfo& tensor = schema.tensors()[static_cast<std::size_t>(spans[i].tensor)];
        std::size_t offset = 0;
        for (std::uint64_t b = 0; b < spans[i].block_count; ++b) {
            OwnBlock block;
            block.range.tensor = static_cast<std::size_t>(spans[i].tensor);
            block.range.first_element = (spans[i].first_block + b) << log2;
            block.range.element_count = std::min(
                std::uint64_t{1} << log2, element_count_of(tensor) - block.range.first_element);
            block.range.element_bytes = traits_of(tensor.dtype).element_bytes;
            block.span = i;
            block.offset = offset;
            offset += block.size();
            blocks.push_back(block);
        }
    }
    return blocks;
}

Views views_of(const std::vector<Bytes>& kept) {
    return {kept.begin(), kept.end()};
}

}  // namespace

struct ShardWriter::State {
    State(const Location& run, Schema given, std::uint64_t number, std::vector<BlockSpan> held,
          const ShardOptions& asked)
        : schema(std::move(given)),
          rank(number),
          spans(std::move(held)),
          options(asked),
          scratch(asked.scratch),
          uploader(run, asked.parallel_uploads, std::max<std::uint64_t>(1, asked.part_bytes)),
          seeds(seeds_of(schema)),
          blocks(blocks_of(schema, spans, asked.log2_block_elements)) {}

    /// What was coded and is not known to be committed.
    struct Pending {
        ShardSlip slip;
        OwnedFile file;            // the strand
        std::vector<Bytes> whole;  // of kWhole, instead of a delta: the spans
        StoredFile stored;
        bool reused = false;
    };

    Schema schema;
    std::uint64_t rank;
    std::vector<BlockSpan> spans;
    ShardOptions options;
    std::optional<PendingFolder> temporary;
    fs::path scratch;
    Uploader uploader;
    std::vector<TensorSeed> seeds;
    std::vector<OwnBlock> blocks;
    std::vector<Bytes> kept;  // of each span
    std::optional<StateDigest> base;
    std::optional<Pending> pending;
    std::uint64_t files_made = 0;

    ShardSlip new_slip(const ShardCall& call) const {
        ShardSlip slip;
        slip.rank = rank;
        slip.call = call;
        slip.schema = schema.digest();
        slip.log2_block_elements = options.log2_block_elements;
        slip.spans = spans;
        return slip;
    }

    fs::path new_file() { return scratch / fmt::format("strand-{}-{}", rank, files_made++); }

    std::size_t span_bytes(std::size_t span) const {
        return static_cast<std::size_t>(
            plain_bytes({spans[span]}, schema, options.log2_block_elements));
    }

    Result<void> check_views(const Views& views) const {
        bool right = views.size() == spans.size();
        for (std::size_t i = 0; right && i < views.size(); ++i) {
            right = views[i].size() == span_bytes(i);
        }
        if (right) return {};
        return fail(ErrorKind::kInvalid,
                    fmt::format("rank {}: the weights given are not those of its blocks", rank));
    }

    Result<void> code_delta(const Views& views, Pending& into) {
        into.file = OwnedFile(new_file());
        WISP_ASSIGN(PendingFile file, PendingFile::create(into.file.path()));
        const unsigned threads = thread_count(options.threads);
        std::vector<BlockEncoder> encoders(threads);
        ShardSlip& slip = into.slip;
        WISP_TRY(ordered_parallel<WrittenBlock>(
            blocks.size(), threads,
            [&](std::uint64_t index, unsigned thread) -> Result<WrittenBlock> {
                const OwnBlock& block = blocks[index];
                return encode_compact(schema.tensors()[block.range.tensor], block.range,
                                      block.of(kept[block.span]), block.of(views[block.span]),
                                      seeds[block.range.tensor], encoders[thread]);
            },
            [&](std::uint64_t, WrittenBlock block) -> Result<void> {
                slip.state += block.old_state;
                slip.touched_before += block.touched.before;
                slip.touched_after += block.touched.after;
                slip.blocks.push_back({block.encoded.coded.size(), block.encoded.changed_elements});
                return file.append(block.encoded.coded);
            }));
        return file.commit_unsynced();
    }

    Result<StateDigest> digest_blocks(const Views& views) const {
        StateDigest digest;
        WISP_TRY(ordered_parallel<StateDigest>(
            blocks.size(), thread_count(options.threads),
            [&](std::uint64_t index, unsigned) -> Result<StateDigest> {
                const OwnBlock& block = blocks[index];
                const auto bytes = block.of(views[block.span]);
                return active_kernels().mix_bytes(bytes.data(), bytes.size(),
                                                  seeds[block.range.tensor],
                                                  block.range.first_word());
            },
            [&](std::uint64_t, StateDigest part) -> Result<void> {
                digest += part;
                return {};
            }));
        return digest;
    }

    /// The spans in the order in which a checkpoint file has their tensors.
    Result<void> write_strand(const Views& views, const fs::path& path) const {
        const std::vector<std::size_t> order = weights_layout(schema).order;
        std::vector<std::size_t> place(order.size());
        for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
        std::vector<std::size_t> by_place(spans.size());
        std::iota(by_place.begin(), by_place.end(), std::size_t{0});
        std::ranges::stable_sort(by_place, {}, [&](std::size_t span) {
            return place[static_cast<std::size_t>(spans[span].tensor)];
        });
        WISP_ASSIGN(PendingFile file, PendingFile::create(path));
        for (const std::size_t span : by_place) WISP_TRY(file.append(views[span]));
        return file.commit_unsynced();
    }

    /// What is short goes into the slip, the rest into the bucket.
    Result<void> send(Pending& out) {
        const bool delta = out.slip.call.part == ShardPart::kDelta;
        WISP_ASSIGN(const MappedFile mapped, MappedFile::open(out.file.path()));
        out.slip.parts.clear();
        out.slip.payload.clear();
        if (mapped.bytes().size() <= options.inline_bytes) {
            out.slip.payload.assign(mapped.bytes().begin(), mapped.bytes().end());
            return {};
        }
        const auto name_key = [&](std::string_view hash, PartNumber part) {
            const ObjectName name{out.slip.call.step, out.slip.call.epoch, hash, part};
            return delta ? woven_delta_key(name) : woven_anchor_key(name);
        };
        WISP_ASSIGN(out.stored, uploader.upload(out.file.path(), "", name_key));
        out.reused = uploader.take_counts().reused_bytes > 0;
        out.slip.parts = out.stored.parts;
        return {};
    }

    /// The kept blocks moved on by what was coded from them.
    Result<void> apply(const Pending& step) {
        WISP_ASSIGN(const MappedFile mapped, MappedFile::open(step.file.path()));
        std::vector<std::size_t> begins(blocks.size() + 1, 0);
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            begins[i + 1] = begins[i] + static_cast<std::size_t>(step.slip.blocks[i].bytes);
        }
        if (begins.back() != mapped.bytes().size()) {
            return fail(ErrorKind::kCorrupt, fmt::format("rank {}: its strand was cut", rank));
        }
        const unsigned threads = thread_count(options.threads);
        std::vector<BlockDecoder> decoders(threads);
        std::vector<BlockChanges> changes(threads);
        return ordered_parallel<bool>(
            blocks.size(), threads,
            [&](std::uint64_t index, unsigned thread) -> Result<bool> {
                const OwnBlock& block = blocks[index];
                const auto coded =
                    mapped.bytes().subspan(begins[index], begins[index + 1] - begins[index]);
                if (coded.empty()) return false;
                std::byte* bytes = kept[block.span].data() + block.offset;
                const Dtype dtype = schema.tensors()[block.range.tensor].dtype;
                WISP_TRY(decoders[thread].decode(coded, {bytes, block.size()}, traits_of(dtype),
                                                 changes[thread]));
                scatter_new_bits(changes[thread], bytes);
                return true;
            },
            [](std::uint64_t, bool) -> Result<void> { return {}; });
    }
};

ShardWriter::ShardWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter& ShardWriter::operator=(ShardWriter&&) noexcept = default;
ShardWriter::~ShardWriter() = default;

Result<ShardWriter> ShardWriter::open(const Location& run, Schema schema, std::uint64_t rank,
                                      std::vector<BlockSpan> spans, const ShardOptions& options) {
    if (options.log2_block_elements < limits::kMinLog2BlockElements ||
        options.log2_block_elements > limits::kMaxLog2BlockElements) {
        return fail(ErrorKind::kInvalid, fmt::format("blocks of 2^{} elements cannot be; take 6 to "
                                                     "24",
                                                     options.log2_block_elements));
    }
    WISP_TRY(count_blocks(spans, schema, options.log2_block_elements));
    auto state = std::make_unique<State>(run, std::move(schema), rank, std::move(spans), options);
    WISP_ASSIGN(PendingFolder folder, PendingFolder::temporary(options.scratch));
    state->scratch = folder.path();
    state->temporary.emplace(std::move(folder));
    return ShardWriter(std::move(state));
}

const std::optional<StateDigest>& ShardWriter::base() const {
    return state_->base;
}

Result<void> ShardWriter::adopt(const Weights& whole, const StateDigest& state) {
    WISP_TRY(require_same_schema(state_->schema, "the trainer", whole.schema(), "the run"));
    drop();
    state_->base.reset();
    state_->kept.assign(state_->spans.size(), {});
    for (std::size_t i = 0; i < state_->spans.size(); ++i) {
        const BlockSpan& span = state_->spans[i];
        const auto tensor = static_cast<std::size_t>(span.tensor);
        const unsigned element_bytes =
            traits_of(state_->schema.tensors()[tensor].dtype).element_bytes;
        const auto bytes = whole.bytes(tensor).subspan(
            static_cast<std::size_t>(span.first_block << state_->options.log2_block_elements) *
                element_bytes,
            state_->span_bytes(i));
        state_->kept[i].assign(bytes.begin(), bytes.end());
    }
    state_->base = state;
    return {};
}

Result<CodedShard> ShardWriter::code(const ShardCall& call, const Views& spans) {
    const Stopwatch timer;
    drop();
    WISP_TRY(state_->check_views(spans));
    State::Pending pending;
    pending.slip = state_->new_slip(call);
    CodedShard coded;
    for (const OwnBlock& block : state_->blocks) coded.total_elements += block.range.element_count;
    if (call.part == ShardPart::kWhole) {
        for (const auto& view : spans) pending.whole.emplace_back(view.begin(), view.end());
        coded.changed_elements = coded.total_elements;
        coded.payload_bytes =
            plain_bytes(state_->spans, state_->schema, state_->options.log2_block_elements);
    } else if (call.part == ShardPart::kDelta && state_->base && *state_->base == call.base) {
        WISP_TRY(state_->code_delta(spans, pending));
        for (const SlipBlock& block : pending.slip.blocks) {
            coded.changed_elements += block.changed;
            coded.payload_bytes += block.bytes;
        }
    } else {
        return fail(ErrorKind::kWrongBase,
                    fmt::format("rank {} does not hold the blocks of the state that step {} stands "
                                "on; take them from the bucket",
                                state_->rank, call.step));
    }
    state_->pending.emplace(std::move(pending));
    coded.seconds = timer.seconds();
    return coded;
}

Result<std::vector<std::byte>> ShardWriter::deliver(const ShardCall& call) {
    if (call.part != ShardPart::kAnchor) {
        if (!state_->pending || state_->pending->slip.call != call) {
            return fail(ErrorKind::kInvalid, fmt::format("rank {} has coded nothing for step {}",
                                                         state_->rank, call.step));
        }
        State::Pending& pending = *state_->pending;
        if (call.part == ShardPart::kWhole) {
            const Views views = views_of(pending.whole);
            WISP_ASSIGN(pending.slip.state, state_->digest_blocks(views));
            pending.file = OwnedFile(state_->new_file());
            WISP_TRY(state_->write_strand(views, pending.file.path()));
        }
        WISP_TRY(state_->send(pending));
        return write_slip(pending.slip);
    }
    if (!state_->base || *state_->base != call.base) {
        return fail(ErrorKind::kWrongBase, fmt::format("rank {} does not hold the blocks of the "
                                                       "state of step {}",
                                                       state_->rank, call.step));
    }
    State::Pending anchor;
    anchor.slip = state_->new_slip(call);
    const Views views = views_of(state_->kept);
    WISP_ASSIGN(anchor.slip.state, state_->digest_blocks(views));
    anchor.file = OwnedFile(state_->new_file());
    WISP_TRY(state_->write_strand(views, anchor.file.path()));
    WISP_TRY(state_->send(anchor));
    return write_slip(anchor.slip);
}

Result<void> ShardWriter::advance(const StateDigest& state) {
    if (!state_->pending) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("rank {} has coded nothing that could be committed", state_->rank));
    }
    State::Pending pending = std::move(*state_->pending);
    state_->pending.reset();
    if (pending.slip.call.part == ShardPart::kWhole) {
        state_->kept = std::move(pending.whole);
    } else if (auto moved = state_->apply(pending); !moved) {
        state_->base.reset();
        return moved;
    }
    state_->base = state;
    if (!pending.reused) return {};
    return state_->uploader.confirm(pending.stored, pending.file.path());
}

void ShardWriter::drop() {
    state_->pending.reset();
}

}  // namespace wisp
