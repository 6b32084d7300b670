#include "delta/join_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/file.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "codec/dense_decoder.hpp"
#include "delta/deliver_changes.hpp"
#include "delta/delta_chain.hpp"
#include "delta/touched_words.hpp"
#include "kernel/kernels.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

/// One per thread.
struct FillWorker {
    SwiftDecoder swift;
    DenseDecoder dense;
    BlockChanges changes;
    Bytes zeros;
    Bytes tile;
};

class ZeroedFiller {
  public:
    ZeroedFiller(const Checkpoint& zeroed, const VerifiedDelta& delta, bool prove)
        : zeroed_(zeroed), delta_(delta), prove_(prove) {}

    Result<void> open() {
        for (const CheckpointFile& file : zeroed_.files()) {
            WISP_ASSIGN(FileHandle handle, open_for_update(file.path));
            handles_.push_back(std::move(handle));
        }
        for (std::size_t t = 0; t < delta_.tensors().size(); ++t) {
            const auto& blocks = delta_.tensors()[t].blocks;
            for (std::size_t i = 0; i < blocks.size(); ++i) {
                if (!blocks[i].empty()) tiles_.push_back({t, i});
            }
        }
        return {};
    }

    Result<void> fill(unsigned threads) const {
        std::vector<FillWorker> workers(threads);
        return ordered_parallel<bool>(
            tiles_.size(), threads,
            [&](std::uint64_t index, unsigned thread) -> Result<bool> {
                WISP_TRY(fill_tile(tiles_[static_cast<std::size_t>(index)], workers[thread]));
                return true;
            },
            [](std::uint64_t, bool) -> Result<void> { return {}; });
    }

  private:
    struct TileAt {
        std::size_t tensor = 0;  // of the delta
        std::size_t index = 0;
    };

    Result<void> fill_tile(const TileAt& at, FillWorker& worker) const {
        const DeltaTensor& tensor = delta_.tensors()[at.tensor];
        const Tile tile = TileGrid(tensor.info, tensor.cut)[at.index];
        const DtypeTraits& traits = traits_of(tensor.info.dtype);
        const auto bytes = static_cast<std::size_t>(tile.element_count() * traits.element_bytes);
        if (worker.zeros.size() < bytes) worker.zeros.resize(bytes);
        worker.tile.resize(bytes);
        auto decoded =
            decode(tensor.blocks[at.index], std::span(worker.zeros).first(bytes), traits, worker);
        if (!decoded) {
            Error error = std::move(decoded).error();
            error.text = fmt::format("{}: {}", where(at), error.text);
            return std::unexpected(std::move(error));
        }
        if (prove_) WISP_TRY(prove(at, tile, worker));
        return write(tensor, tile, worker.tile);
    }

    static Result<void> decode(std::span<const std::byte> coded, std::span<const std::byte> zeros,
                               const DtypeTraits& traits, FillWorker& worker) {
        if (!SwiftDecoder::is_sparse(coded)) {
            return worker.dense.decode(coded, zeros, traits, worker.tile.data());
        }
        WISP_TRY(worker.swift.decode(coded, zeros, traits, worker.changes));
        std::ranges::fill(worker.tile, std::byte{});
        scatter_new_bits(worker.changes, worker.tile.data());
        return {};
    }

    Result<void> prove(const TileAt& at, const Tile& tile, const FillWorker& worker) const {
        const DeltaTensor& tensor = delta_.tensors()[at.tensor];
        const unsigned width = traits_of(tensor.info.dtype).element_bytes;
        const TensorSeed seed = seed_of(tensor.info);
        TouchedSums touched;
        const std::byte* from = worker.tile.data();
        tile.each_run([&](std::uint64_t first, std::uint64_t past) {
            const auto count = static_cast<std::size_t>(past - first);
            touched +=
                active_kernels()
                    .compare(worker.zeros.data(), from, count, width, seed, first * width / 8)
                    .touched;
            from += count * width;
        });
        if (touched.before.a != tensor.proofs[at.index].before) {
            return fail(ErrorKind::kWrongBase, where(at) + " was not made from zeros");
        }
        if (touched.after.a != tensor.proofs[at.index].after) {
            return fail(ErrorKind::kCorrupt, where(at) + " leads to other values than it says");
        }
        return {};
    }

    Result<void> write(const DeltaTensor& tensor, const Tile& tile, const Bytes& bytes) const {
        const TensorPlace& place = zeroed_.place(*zeroed_.schema().find(tensor.info.name));
        const unsigned width = traits_of(tensor.info.dtype).element_bytes;
        Result<void> written;
        std::size_t from = 0;
        tile.each_run([&](std::uint64_t first, std::uint64_t past) {
            const auto size = static_cast<std::size_t>((past - first) * width);
            if (written) {
                written = write_at(handles_[place.file], place.offset + first * width,
                                   std::span(bytes).subspan(from, size),
                                   zeroed_.files()[place.file].path);
            }
            from += size;
        });
        return written;
    }

    std::string where(const TileAt& at) const {
        return fmt::format("tile {} of tensor {} in the anchor {}", at.index,
                           shown(delta_.tensors()[at.tensor].info.name), shown(delta_.label()));
    }

    const Checkpoint& zeroed_;
    const VerifiedDelta& delta_;
    bool prove_;
    std::vector<FileHandle> handles_;
    std::vector<TileAt> tiles_;
};

/// Puts the words that the room has indices of behind those.
void fill_room(const Checkpoint& checkpoint, std::span<const TouchedTensor> tensors,
               std::byte* room) {
    for (const TouchedTensor& touched : tensors) {
        const auto bytes = checkpoint.bytes(touched.tensor);
        std::byte* const words = room + index_bytes_of(touched.words);
        for (std::size_t i = 0; i < touched.words; ++i) {
            const std::size_t first = std::size_t{load_le<std::uint32_t>(room + i * 4)} * 8;
            std::memcpy(words + i * 8, bytes.data() + first,
                        std::min<std::size_t>(8, bytes.size() - first));
        }
        room += room_bytes_of(touched.words);
    }
}

}  // namespace

Result<StateDigest> fill_zeroed(const Checkpoint& zeroed, const std::filesystem::path& delta,
                                const HeldSlices* held, unsigned threads) {
    WISP_ASSIGN(const VerifiedDelta verified,
                held == nullptr ? verify_delta_file(delta) : verify_delta_slices(delta, *held));
    WISP_TRY(BoundDelta::bind(verified, zeroed.schema()));
    if (verified.facts().codec != Codec::kSwift ||
        !std::ranges::all_of(verified.tensors(),
                             [](const DeltaTensor& tensor) { return !tensor.proofs.empty(); })) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("the anchor {} is not a sliced delta", shown(verified.label())));
    }
    ZeroedFiller filler(zeroed, verified, held != nullptr);
    WISP_TRY(filler.open());
    WISP_TRY(filler.fill(thread_count(threads)));
    return verified.facts().result;
}

Result<ApplyReport> patch_slices(const Checkpoint& checkpoint, const StateDigest& known,
                                 const std::vector<std::filesystem::path>& deltas,
                                 const HeldSlices& held, unsigned threads) {
    const Schema& schema = checkpoint.schema();
    WISP_ASSIGN(const DeltaChain chain, DeltaChain::open(deltas, schema, &held));
    if (!chain.all_partial()) {
        return fail(ErrorKind::kUnsupported, "a delta that is not sliced, over parts of a state");
    }
    WISP_ASSIGN(TouchedWords touched, TouchedWords::of(chain, schema, threads));
    Bytes room(touched.room_bytes());
    touched.write_indices(room);
    fill_room(checkpoint, touched.tensors(), room.data());
    ChainSums sums;
    WISP_ASSIGN(const auto blocks, touched.run(chain, room, sums, threads));
    WISP_ASSIGN(const DeltaChain::Proof proof, chain.prove(known, sums));
    WISP_TRY(patch_unguarded(checkpoint, blocks));
    ApplyReport report;
    chain.tell(proof, sums, report);
    return report;
}

}  // namespace wisp
