// One rank of a sharded trainer: its blocks, coded and uploaded.
#include <fmt/format.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/free_memory.hpp"
#include "base/limits.hpp"
#include "base/owned_file.hpp"
#include "base/parallel.hpp"
#include "base/pending_folder.hpp"
#include "base/try.hpp"
#include "log/run_keys.hpp"
#include "publish/dense_step.hpp"
#include "publish/sharded/shard_coder.hpp"
#include "publish/uploader.hpp"
#include "wisp/control.hpp"
#include "wisp/shard.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

// Of the memory that is free: the ranks of a host, mostly eight, ask at the same time, and the
// trainer needs the rest.
constexpr std::uint64_t kCopiedShareOfMemory = 32;

SpanViews views_of(const std::vector<Bytes>& kept) {
    return {kept.begin(), kept.end()};
}

}  // namespace

struct ShardWriter::State {
    State(const Location& run, Schema given, std::uint64_t number, std::vector<BlockSpan> held,
          const ShardOptions& asked, unsigned log2)
        : own(std::move(given), std::move(held), log2, asked.threads),
          rank(number),
          options(asked),
          scratch(asked.scratch),
          uploader(run, asked.parallel_uploads, std::max<std::uint64_t>(1, asked.part_bytes)) {}

    /// What was coded and is not known to be committed.
    struct Pending {
        ShardManifest manifest;
        OwnedFile file;                     // the segment
        std::unique_ptr<ShardCoder> coder;  // of a delta
        std::vector<Bytes> whole;           // of kWhole, instead of a delta: the spans
        StoredFile stored;
        bool reused = false;
    };

    /// Between begin() and finish().
    struct Coding {
        Pending pending;
        std::size_t next_span = 0;
    };

    OwnBlocks own;
    std::uint64_t rank;
    ShardOptions options;
    std::optional<PendingFolder> temporary;
    fs::path scratch;
    Uploader uploader;
    std::vector<Bytes> kept;  // of each span
    std::optional<StateDigest> base;
    std::optional<Pending> pending;
    std::optional<Coding> coding;
    std::uint64_t files_made = 0;
    DeliveredShard delivered;
    StepMemory memory;  // between steps

    ShardManifest new_shard_manifest(const ShardCall& call) const {
        ShardManifest manifest;
        manifest.rank = rank;
        manifest.call = call;
        manifest.schema = own.schema().digest();
        manifest.log2_block_elements = own.log2_block_elements();
        manifest.spans = own.spans();
        return manifest;
    }

    StepMemory memory_for_step() {
        StepMemory given = std::exchange(memory, {});
        given.list_bytes =
            std::min(options.change_buffer_bytes, longest_list_bytes(own.total_bytes()));
        given.copy_bytes = options.copy_bytes.value_or(free_memory_bytes() / kCopiedShareOfMemory +
                                                       given.copy.bytes().size());
        return given;
    }

    fs::path new_file() { return scratch / fmt::format("segment-{}-{}", rank, files_made++); }

    DeliveredShard count(const ShardManifest& manifest) const {
        DeliveredShard counted;
        counted.bytes = manifest.uploaded_bytes();
        const bool whole = manifest.call.part == ShardPart::kWhole;
        for (std::size_t i = 0; i < own.blocks().size(); ++i) {
            counted.changed_elements +=
                whole ? own.blocks()[i].range.element_count : manifest.blocks[i].changed;
        }
        return counted;
    }

    Result<void> check_views(const SpanViews& views, std::size_t first) const {
        bool right = views.size() <= own.spans().size() - first;
        for (std::size_t i = 0; right && i < views.size(); ++i) {
            right = views[i].size() == own.span_bytes(first + i);
        }
        if (right) return {};
        return fail(ErrorKind::kInvalid,
                    fmt::format("rank {}: the weights given are not those of its blocks", rank));
    }

    /// What is short goes into the shard manifest, the rest into the bucket.
    Result<void> send(Pending& out) {
        WISP_ASSIGN(const MappedFile mapped, MappedFile::open(out.file.path()));
        out.manifest.parts.clear();
        out.manifest.payload.clear();
        if (mapped.bytes().size() <= options.inline_bytes) {
            out.manifest.payload.assign(mapped.bytes().begin(), mapped.bytes().end());
            return {};
        }
        const ShardCall& call = out.manifest.call;
        const auto name_key =
            call.part == ShardPart::kDelta ? delta_segment_key : anchor_segment_key;
        WISP_ASSIGN(out.stored,
                    uploader.upload(out.file.path(), "", name_key, call.step, call.epoch));
        out.reused = uploader.take_counts().reused_bytes > 0;
        out.manifest.parts = out.stored.parts;
        return {};
    }
};

ShardWriter::ShardWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;
ShardWriter& ShardWriter::operator=(ShardWriter&&) noexcept = default;
ShardWriter::~ShardWriter() = default;

Result<ShardWriter> ShardWriter::open(const Location& run, Schema schema, std::uint64_t rank,
                                      std::vector<BlockSpan> spans, const ShardOptions& options,
                                      unsigned log2_block_elements) {
    if (log2_block_elements < limits::kMinLog2BlockElements ||
        log2_block_elements > limits::kMaxLog2BlockElements) {
        return fail(ErrorKind::kInvalid, fmt::format("blocks of 2^{} elements cannot be; take 6 to "
                                                     "24",
                                                     log2_block_elements));
    }
    WISP_TRY(count_blocks(spans, schema, log2_block_elements));
    auto state = std::make_unique<State>(run, std::move(schema), rank, std::move(spans), options,
                                         log2_block_elements);
    WISP_ASSIGN(PendingFolder folder, PendingFolder::temporary(options.scratch));
    state->scratch = folder.path();
    state->temporary.emplace(std::move(folder));
    return ShardWriter(std::move(state));
}

const std::optional<StateDigest>& ShardWriter::base() const {
    return state_->base;
}

Result<void> ShardWriter::adopt(const Weights& whole, const StateDigest& state) {
    const StopScope scope(state_->options.stop);
    WISP_TRY(require_same_schema(state_->own.schema(), "the trainer", whole.schema(), "the run"));
    drop();
    state_->base.reset();
    state_->kept.assign(state_->own.spans().size(), {});
    for (std::size_t i = 0; i < state_->own.spans().size(); ++i) {
        const BlockSpan& span = state_->own.spans()[i];
        const auto tensor = static_cast<std::size_t>(span.tensor);
        const unsigned element_bytes =
            traits_of(state_->own.schema().tensors()[tensor].dtype).element_bytes;
        const auto bytes = whole.bytes(tensor).subspan(
            static_cast<std::size_t>(span.first_block << state_->own.log2_block_elements()) *
                element_bytes,
            state_->own.span_bytes(i));
        state_->kept[i].assign(bytes.begin(), bytes.end());
    }
    state_->base = state;
    return {};
}

Result<void> ShardWriter::begin(const ShardCall& call) {
    drop();
    const bool based = state_->base && *state_->base == call.base;
    if (call.part == ShardPart::kAnchor || (call.part == ShardPart::kDelta && !based)) {
        return fail(ErrorKind::kWrongBase,
                    fmt::format("rank {} does not hold the blocks of the state that step {} stands "
                                "on; take them from the bucket",
                                state_->rank, call.step));
    }
    // Moved in: clang holds a nested type's defaults for unknown until the type around it is whole.
    State::Coding& coding = state_->coding.emplace(State::Coding{});
    coding.pending.manifest = state_->new_shard_manifest(call);
    if (call.part == ShardPart::kWhole) return {};
    coding.pending.file = OwnedFile(state_->new_file());
    coding.pending.coder =
        std::make_unique<ShardCoder>(state_->own, call.codec, state_->options.threads,
                                     coding.pending.file.path(), state_->memory_for_step());
    return {};
}

Result<void> ShardWriter::add(const SpanViews& spans) {
    const StopScope scope(state_->options.stop);
    if (!state_->coding) {
        return fail(ErrorKind::kInvalid, fmt::format("rank {} has not begun", state_->rank));
    }
    State::Coding& coding = *state_->coding;
    WISP_TRY(state_->check_views(spans, coding.next_span));
    if (coding.pending.coder) {
        WISP_TRY(coding.pending.coder->add(spans, state_->kept, coding.pending.manifest));
    } else {
        for (const auto& view : spans) coding.pending.whole.emplace_back(view.begin(), view.end());
    }
    coding.next_span += spans.size();
    return {};
}

Result<void> ShardWriter::finish() {
    if (!state_->coding || state_->coding->next_span != state_->own.spans().size()) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("rank {} was not given all of its blocks", state_->rank));
    }
    State::Coding coding = std::move(*state_->coding);
    state_->coding.reset();
    state_->pending.emplace(std::move(coding.pending));
    return {};
}

Result<void> ShardWriter::find(const ShardCall& call, const SpanViews& spans) {
    WISP_TRY(begin(call));
    WISP_TRY(add(spans));
    return finish();
}

Result<std::vector<std::byte>> ShardWriter::deliver(const ShardCall& call) {
    const StopScope scope(state_->options.stop);
    if (call.part != ShardPart::kAnchor) {
        if (!state_->pending || state_->pending->manifest.call != call) {
            return fail(ErrorKind::kInvalid, fmt::format("rank {} has coded nothing for step {}",
                                                         state_->rank, call.step));
        }
        State::Pending& pending = *state_->pending;
        if (pending.coder) WISP_TRY(pending.coder->code(state_->kept, pending.manifest));
        if (call.part == ShardPart::kWhole) {
            const SpanViews views = views_of(pending.whole);
            WISP_ASSIGN(pending.manifest.state, state_->own.digest(views));
            pending.file = OwnedFile(state_->new_file());
            WISP_TRY(state_->own.write_segment(views, pending.file.path()));
        }
        WISP_TRY(state_->send(pending));
        state_->delivered = state_->count(pending.manifest);
        return write_shard_manifest(pending.manifest);
    }
    if (!state_->base || *state_->base != call.base) {
        return fail(ErrorKind::kWrongBase, fmt::format("rank {} does not hold the blocks of the "
                                                       "state of step {}",
                                                       state_->rank, call.step));
    }
    State::Pending anchor;
    anchor.manifest = state_->new_shard_manifest(call);
    const SpanViews views = views_of(state_->kept);
    WISP_ASSIGN(anchor.manifest.state, state_->own.digest(views));
    anchor.file = OwnedFile(state_->new_file());
    WISP_TRY(state_->own.write_segment(views, anchor.file.path()));
    WISP_TRY(state_->send(anchor));
    return write_shard_manifest(anchor.manifest);
}

Result<void> ShardWriter::advance(const StateDigest& state) {
    const StopScope scope(state_->options.stop);
    if (!state_->pending) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("rank {} has coded nothing that could be committed", state_->rank));
    }
    State::Pending pending = std::move(*state_->pending);
    state_->pending.reset();
    if (pending.manifest.call.part == ShardPart::kWhole) {
        state_->kept = std::move(pending.whole);
    } else if (auto moved = pending.coder->move(state_->kept, pending.manifest); !moved) {
        state_->base.reset();
        return moved;
    } else {
        state_->memory = pending.coder->release_memory(pending.manifest);
    }
    state_->base = state;
    if (!pending.reused) return {};
    return state_->uploader.confirm(pending.stored, pending.file.path());
}

const DeliveredShard& ShardWriter::delivered() const {
    return state_->delivered;
}

void ShardWriter::drop() {
    state_->pending.reset();
    state_->coding.reset();
}

}  // namespace wisp
