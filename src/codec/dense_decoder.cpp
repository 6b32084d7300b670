#include "codec/dense_decoder.hpp"

#include "base/try.hpp"
#include "codec/block_layout.hpp"
#include "kernel/kernels.hpp"
#include "kernel/scatter.hpp"

namespace wisp {

Result<std::span<const std::byte>> decode_dense(std::span<const std::byte> coded,
                                                std::size_t block_bytes, unsigned element_bytes,
                                                Bytes& room) {
    ByteReader in(coded);
    if (static_cast<BlockKind>(in.fixed<std::uint8_t>()) == BlockKind::kSplit) {
        WISP_TRY(decode_split(in, block_bytes, element_bytes, room));
        return room;
    }
    if (in.remaining() != block_bytes) {
        return fail(ErrorKind::kCorrupt, "coded block: raw block of another length");
    }
    return in.take(block_bytes);
}

void compare_blocks(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                    BlockChanges& changes) {
    const std::size_t count = old_block.size() / changes.element_bytes;
    changes.positions.resize(count);
    changes.positions.resize(active_kernels().scan(old_block.data(), new_block.data(), count,
                                                   changes.element_bytes, changes.positions.data(),
                                                   {}));
    gather_bits(old_block.data(), new_block.data(), changes);
}

std::unexpected<Error> unknown_kind() {
    return fail(ErrorKind::kUnsupported,
                "coded block: unknown kind; a newer wisp wrote it, upgrade to read it");
}

}  // namespace wisp
