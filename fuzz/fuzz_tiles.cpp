// Sliced deltas: a tensor cut by the input into tiles of its bytes, under hashes and a seal that
// fit. What is verified is decoded whole, and by tiles as a host does that holds a part of it.
#include "base/deflate.hpp"
#include "checkpoint/needed_tiles.hpp"
#include "delta/compact_sealer.hpp"
#include "delta/touched_words.hpp"
#include "fuzz_input.hpp"
#include "outcome.hpp"
#include "sound_changes.hpp"

#include <sys/mman.h>
#include <unistd.h>

using namespace wisp;
using namespace wisp::fuzz;

namespace {

const TensorInfo kTensor{"w.down_proj", Dtype::kBf16, {24, 48}};

class TilesFile {
  public:
    TilesFile() : descriptor_(::memfd_create("wisp-fuzz", MFD_CLOEXEC)) {}
    void fill(const Bytes& bytes) {
        FUZZ_CHECK(::ftruncate(descriptor_, 0) == 0);
        FUZZ_CHECK(::pwrite(descriptor_, bytes.data(), bytes.size(), 0) ==
                   static_cast<ssize_t>(bytes.size()));
    }
    std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

  private:
    int descriptor_;
};

/// A name that says that the file holds a part.
struct NamedLink {
    explicit NamedLink(const std::filesystem::path& file) {
        std::filesystem::remove(path);
        std::filesystem::create_symlink(file, path);
    }
    ~NamedLink() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
    std::filesystem::path path =
        std::filesystem::temp_directory_path() /
        ("wisp-fuzz-" + std::to_string(::getpid()) + std::string(kSlicesSuffix));
};

DeltaDirectory directory_from(FuzzInput& in, std::vector<Bytes>& tiles) {
    DeltaDirectory directory;
    directory.log2_block_elements = 9;
    directory.slices = 1 + static_cast<unsigned>(in.choice(8));
    DirectoryTensor listed;
    listed.info = kTensor;
    listed.changed_elements = 1;
    listed.cut = {6 + static_cast<unsigned>(in.choice(4)), std::uint64_t{1} << in.choice(3)};
    const TileGrid grid(listed.info, listed.cut);
    for (std::uint64_t i = 0; i < grid.count(); ++i) {
        const auto taken = in.take(in.number<std::uint8_t>());
        Bytes tile(taken.begin(), taken.end());
        if (tile.size() <= kTileProofBytes) tile.clear();
        listed.block_bytes.push_back(tile.size());
        listed.hashes.push_back(tile_hash(tile));
        tiles.push_back(std::move(tile));
    }
    directory.tensors.push_back(std::move(listed));
    return directory;
}

Bytes file_from(const DeltaDirectory& directory, const std::vector<Bytes>& tiles,
                const Schema& schema) {
    const auto offsets = tile_offsets(directory);
    std::uint64_t total = 0;
    for (const Bytes& tile : tiles) total += tile.size();
    Bytes blocks(static_cast<std::size_t>(total));
    for (std::size_t i = 0; i < tiles.size(); ++i) {
        std::ranges::copy(tiles[i], blocks.begin() + static_cast<std::ptrdiff_t>(offsets[0][i]));
    }
    DeltaFacts facts;
    facts.codec = Codec::kSwift;
    facts.schema_digest = schema.digest();
    CompactFrame frame = frame_compact(directory, total, facts).value();
    Bytes file = write_safetensors_header(frame.entries, frame.metadata, kSealKey);
    Bytes data = frame.directory;
    data.insert(data.end(), blocks.begin(), blocks.end());
    const std::string seal = seal_text(file, sha256(data));
    std::ranges::copy(as_bytes(seal), file.begin() + static_cast<std::ptrdiff_t>(kSealOffset));
    file.insert(file.end(), data.begin(), data.end());
    return file;
}

/// Whether all blocks were.
bool decode_whole(const VerifiedDelta& delta, const Schema& schema) {
    const auto bound = BoundDelta::bind(delta, schema);
    FUZZ_CHECK(bound.has_value());
    const BlockGrid grid(schema, delta.log2_block_elements());
    const Bytes zeros(static_cast<std::size_t>(schema.total_bytes()));
    BlockDecoders decoders;
    BlockChanges changes;
    bool decoded = true;
    for (std::uint64_t i = 0; i < grid.count(); ++i) {
        const BlockRange range = grid[i];
        const auto old_block = range.of(zeros);
        if (!bound->decode(range, old_block, decoders, changes)) {
            decoded = false;
            continue;
        }
        check_sound(changes, old_block, range.element_bytes);
        FUZZ_CHECK(changes.empty() || bound->touches(range));
    }
    return decoded;
}

/// Whether it was, and led to the values that its tiles say.
bool decode_part(const std::filesystem::path& path, const HeldSlices& held, const Schema& schema) {
    const auto chain = DeltaChain::open({path}, schema, &held);
    FUZZ_CHECK(chain.has_value() && chain->all_partial());
    auto touched = TouchedWords::of(*chain, schema, 1);
    if (!touched) return false;
    Bytes room(touched->room_bytes());
    touched->write_indices(room);
    ChainSums sums;
    const auto moved = touched->run(*chain, room, sums, 1);
    if (!moved) return false;
    for (const MovedBlock& block : *moved) {
        for (const std::uint32_t position : block.changes.positions) {
            FUZZ_CHECK(block.first_element + position < element_count_of(kTensor));
        }
    }
    return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static TilesFile memory;
    static const NamedLink link(memory.path());
    static const Schema schema = Schema::make({kTensor}).value();
    FuzzInput in(data, size);
    const HeldSlices held = {{kTensor.name, {{in.choice(24 * 48), {{1 + in.choice(4), 7}}}}}};
    std::vector<Bytes> tiles;
    const DeltaDirectory directory = directory_from(in, tiles);
    const Bytes file = file_from(directory, tiles, schema);
    const auto delta = verify_delta(file, "fuzz");
    FUZZ_CHECK(delta.has_value());
    bool decoded = decode_whole(*delta, schema);
    memory.fill(file);
    if (needed_tiles(kTensor, {kTensor, directory.tensors[0].cut}, held.at(kTensor.name))) {
        decoded = decode_part(link.path, held, schema) && decoded;
    }
    tell(decoded);
    // And a directory that is anything at all.
    const auto rest = in.rest();
    if (const auto packed = deflate_bytes(rest)) {
        const auto parsed = parse_directory(*packed, rest.size(), 4096, 4);
        if (parsed) (void)tile_offsets(*parsed);
    }
    return 0;
}
