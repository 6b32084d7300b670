#include "delta/delta_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/deflate.hpp"
#include "base/limits.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/blocks.hpp"

namespace wisp {
namespace {

std::unexpected<Error> corrupt(const std::string& what) {
    return fail(ErrorKind::kCorrupt, "directory: " + what);
}

std::size_t shared_bytes(std::string_view previous, std::string_view name) {
    return static_cast<std::size_t>(std::ranges::mismatch(previous, name).in1 - previous.begin());
}

Result<std::string> parse_name(ByteReader& in, const std::string& previous) {
    const std::uint64_t shared = in.varint();
    const std::uint64_t added = in.varint();
    if (!in.ok() || shared > previous.size() || added > limits::kTensorNameBytes ||
        shared + added > limits::kTensorNameBytes) {
        return corrupt("a tensor name is too long or cut off");
    }
    std::string name = previous.substr(0, static_cast<std::size_t>(shared));
    name += in.text(added);
    if (!in.ok()) return corrupt("ends inside a tensor name");
    if (!is_valid_utf8(name)) return corrupt("a tensor name is not UTF-8");
    return name;
}

/// The cut of a tensor and how many tiles that makes.
Result<std::uint64_t> parse_cut(ByteReader& in, const std::string& name, unsigned most_log2,
                                DirectoryTensor& tensor) {
    const std::uint64_t log2 = in.varint();
    tensor.cut.strips = in.varint();
    if (!in.ok() || log2 < limits::kMinLog2BlockElements || log2 > most_log2) {
        return corrupt(name + " is cut into bands of a size that is out of range");
    }
    tensor.cut.log2_band_elements = static_cast<unsigned>(log2);
    if (!can_cut(tensor.info, tensor.cut)) {
        return corrupt(name + " is cut into strips that are not whole words");
    }
    const TileGrid grid(tensor.info, tensor.cut);
    if (grid.bands() > in.remaining() / tensor.cut.strips) {
        return corrupt("ends inside the tiles of " + name);
    }
    return grid.count();
}

Result<void> parse_hashes(ByteReader& in, const std::string& name, DirectoryTensor& tensor) {
    tensor.hashes.resize(tensor.block_bytes.size());
    for (std::size_t i = 0; i < tensor.hashes.size(); ++i) {
        if (tensor.block_bytes[i] == 0) continue;
        if (tensor.block_bytes[i] <= kTileProofBytes)
            return corrupt(name + " has a tile too short");
        const auto hash = in.take(sizeof(TileHash));
        if (!in.ok()) return corrupt("ends inside the hashes of " + name);
        std::ranges::copy(hash, tensor.hashes[i].begin());
    }
    return {};
}

Result<DirectoryTensor> parse_tensor(ByteReader& in, const std::string& previous,
                                     unsigned log2_block_elements, unsigned slices) {
    DirectoryTensor tensor;
    WISP_ASSIGN(tensor.info.name, parse_name(in, previous));
    const std::string name = shown(tensor.info.name);
    const std::uint64_t code = in.varint();
    const auto dtype = dtype_from_code(code);
    if (in.ok() && !dtype) {
        return fail(ErrorKind::kUnsupported,
                    fmt::format("directory: tensor {} has the unknown dtype code {}; upgrade wisp",
                                name, code));
    }
    const std::uint64_t rank = in.varint();
    if (!in.ok() || rank > limits::kTensorRank) return corrupt(name + " has too many dimensions");
    tensor.info.dtype = *dtype;
    for (std::uint64_t i = 0; i < rank; ++i) tensor.info.shape.push_back(in.varint());
    if (auto bytes = byte_count_of(tensor.info); !bytes) return corrupt(bytes.error().text);
    const std::uint64_t elements = element_count_of(tensor.info);
    tensor.changed_elements = in.varint();
    if (tensor.changed_elements == 0 || tensor.changed_elements > elements) {
        return corrupt(name + " has more changes than elements, or none");
    }
    std::uint64_t blocks = block_count_of(elements, log2_block_elements);
    if (slices > 0) {
        WISP_ASSIGN(blocks, parse_cut(in, name, log2_block_elements, tensor));
    }
    if (!in.ok() || blocks > in.remaining()) return corrupt("ends inside the blocks of " + name);
    tensor.block_bytes.reserve(static_cast<std::size_t>(blocks));
    for (std::uint64_t i = 0; i < blocks; ++i) tensor.block_bytes.push_back(in.varint());
    if (!in.ok()) return corrupt("ends inside the blocks of " + name);
    if (slices > 0) WISP_TRY(parse_hashes(in, name, tensor));
    return tensor;
}

}  // namespace

Result<PackedDirectory> write_directory(const DeltaDirectory& directory) {
    Bytes plain;
    append_varint(plain, directory.log2_block_elements);
    append_varint(plain, directory.tensors.size());
    std::string_view previous;
    for (const DirectoryTensor& tensor : directory.tensors) {
        const std::string_view name = tensor.info.name;
        const std::size_t shared = shared_bytes(previous, name);
        append_varint(plain, shared);
        append_varint(plain, name.size() - shared);
        append_text(plain, name.substr(shared));
        append_varint(plain, static_cast<std::uint64_t>(tensor.info.dtype));
        append_varint(plain, tensor.info.shape.size());
        for (const std::uint64_t extent : tensor.info.shape) append_varint(plain, extent);
        append_varint(plain, tensor.changed_elements);
        if (directory.slices > 0) {
            append_varint(plain, tensor.cut.log2_band_elements);
            append_varint(plain, tensor.cut.strips);
        }
        for (const std::uint64_t bytes : tensor.block_bytes) append_varint(plain, bytes);
        for (std::size_t i = 0; i < tensor.hashes.size(); ++i) {
            if (tensor.block_bytes[i] == 0) continue;
            plain.insert(plain.end(), tensor.hashes[i].begin(), tensor.hashes[i].end());
        }
        previous = name;
    }
    PackedDirectory packed;
    packed.plain_bytes = plain.size();
    WISP_ASSIGN(packed.bytes, deflate_bytes(plain));
    return packed;
}

Result<DeltaDirectory> parse_directory(std::span<const std::byte> packed, std::uint64_t plain_bytes,
                                       std::uint64_t blocks_bytes, unsigned slices) {
    if (plain_bytes > limits::kDirectoryBytes) return corrupt("claims to be too large");
    WISP_ASSIGN(const Bytes plain, inflate_bytes(packed, plain_bytes));
    ByteReader in(plain);
    DeltaDirectory directory;
    const std::uint64_t log2 = in.varint();
    if (!in.ok() || log2 < limits::kMinLog2BlockElements || log2 > limits::kMaxLog2BlockElements) {
        return corrupt("its block size is out of range");
    }
    directory.log2_block_elements = static_cast<unsigned>(log2);
    directory.slices = slices;
    const std::uint64_t count = in.varint();
    if (!in.ok() || count > limits::kTensorCount) return corrupt("it lists too many tensors");
    std::string previous;
    std::uint64_t total = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        WISP_ASSIGN(DirectoryTensor tensor,
                    parse_tensor(in, previous, directory.log2_block_elements, slices));
        if (i > 0 && tensor.info.name <= previous) return corrupt("tensor names do not ascend");
        for (const std::uint64_t bytes : tensor.block_bytes) {
            if (__builtin_add_overflow(total, bytes, &total)) return corrupt("blocks overflow");
        }
        previous = tensor.info.name;
        directory.tensors.push_back(std::move(tensor));
    }
    if (!in.at_end()) return corrupt("bytes behind its end");
    if (total != blocks_bytes) {
        return corrupt(
            fmt::format("its blocks add up to {} bytes but {} are there", total, blocks_bytes));
    }
    return directory;
}

TileHash tile_hash(std::span<const std::byte> tile) {
    const Sha256Digest whole = sha256(tile);
    TileHash half;
    std::copy_n(whole.begin(), half.size(), half.begin());
    return half;
}

std::vector<std::vector<std::uint64_t>> tile_offsets(const DeltaDirectory& directory) {
    std::vector<std::vector<std::uint64_t>> offsets;
    // How far each segment has come: at first, how much it holds.
    std::vector<std::uint64_t> next(directory.slices + 2);
    const auto each = [&](auto&& take) {
        for (std::size_t t = 0; t < directory.tensors.size(); ++t) {
            const DirectoryTensor& tensor = directory.tensors[t];
            const TileGrid grid(tensor.info, tensor.cut);
            for (std::size_t i = 0; i < tensor.block_bytes.size(); ++i) {
                take(t, i, grid.segment_of(i, directory.slices), tensor.block_bytes[i]);
            }
        }
    };
    each([&](std::size_t, std::size_t, unsigned segment, std::uint64_t bytes) {
        next[segment + 1] += bytes;
    });
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (const DirectoryTensor& tensor : directory.tensors) {
        offsets.emplace_back(tensor.block_bytes.size());
    }
    each([&](std::size_t t, std::size_t i, unsigned segment, std::uint64_t bytes) {
        offsets[t][i] = next[segment];
        next[segment] += bytes;
    });
    return offsets;
}

}  // namespace wisp
