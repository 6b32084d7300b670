#include "delta/compose_changes.hpp"

#include <cstring>
#include <utility>

namespace wisp {

void compose_changes(BlockChanges& first, const BlockChanges& then, BlockChanges& room) {
    room.clear();
    room.element_bytes = then.element_bytes;
    const std::size_t width = then.element_bytes;
    room.positions.reserve(first.count() + then.count());
    room.old_bits.reserve((first.count() + then.count()) * width);
    room.new_bits.reserve((first.count() + then.count()) * width);
    const auto put = [&](std::uint32_t position, const std::byte* before, const std::byte* after) {
        room.positions.push_back(position);
        room.old_bits.insert(room.old_bits.end(), before, before + width);
        room.new_bits.insert(room.new_bits.end(), after, after + width);
    };
    const auto at = [&](const std::vector<std::byte>& bits, std::size_t i) {
        return bits.data() + i * width;
    };
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < first.count() || j < then.count()) {
        const bool in_first =
            j == then.count() || (i < first.count() && first.positions[i] <= then.positions[j]);
        const bool in_then =
            i == first.count() || (j < then.count() && then.positions[j] <= first.positions[i]);
        const std::byte* before = in_first ? at(first.old_bits, i) : at(then.old_bits, j);
        const std::byte* after = in_then ? at(then.new_bits, j) : at(first.new_bits, i);
        if (!in_first || !in_then || std::memcmp(before, after, width) != 0) {
            put(in_first ? first.positions[i] : then.positions[j], before, after);
        }
        i += in_first ? 1 : 0;
        j += in_then ? 1 : 0;
    }
    std::swap(first, room);
}

}  // namespace wisp
