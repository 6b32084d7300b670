#include "codec/block_decoder.hpp"

#include <algorithm>
#include <string>

#include "base/try.hpp"
#include "codec/block_layout.hpp"
#include "codec/hazard.hpp"
#include "codec/hazard_field.hpp"
#include "codec/rans_reader.hpp"
#include "codec/sparse_header.hpp"
#include "codec/step_model.hpp"
#include "kernel/elements.hpp"
#include "kernel/value_order.hpp"

namespace wisp {
namespace {

std::unexpected<Error> corrupt(const char* what) {
    return fail(ErrorKind::kCorrupt, std::string("coded block: ") + what);
}

template <class T>
Result<void> read_changes(RansReader rans, std::span<const std::byte> old_block,
                          const SparseHeader& header, const DtypeTraits& traits,
                          BlockChanges& changes) {
    const unsigned shift = header.hazard_shift;
    const std::uint64_t bucket = bucket_units(shift);
    const auto count = static_cast<std::size_t>(header.change_count);
    changes.positions.resize(count);
    changes.old_bits.resize(count * sizeof(T));
    changes.new_bits.resize(count * sizeof(T));
    HazardField field(old_block, sizeof(T), exponent_field(traits), header);
    HazardField::Place place{};
    StepModel steps;
    const ValueOrder<T> order(traits.sign_magnitude);
    std::uint64_t origin = 0;
    bool overlong = false;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t slot = rans.peek<Lane::kPosition>(kHazardBits);
        for (; slot >= kEscapeStart && rans.ok(); slot = rans.peek<Lane::kPosition>(kHazardBits)) {
            rans.advance<Lane::kPosition>(kEscapeStart, kEscapeFrequency, kHazardBits);
            origin += bucket;
        }
        if (!rans.ok()) return corrupt("its stream ends too early");
        // Elements before `origin` are behind: the previous change ended there.
        if (!field.find(origin + distance_at(slot, shift), place)) {
            return corrupt("a position lies past the end of the block");
        }
        const std::uint64_t begin = place.start > origin ? place.start - origin : 0;
        const std::uint64_t end = std::min(place.start + place.weight - origin, bucket);
        const std::uint32_t low = slot_of(begin, shift);
        rans.advance<Lane::kPosition>(low, slot_of(end, shift) - low, kHazardBits);
        origin = place.start + place.weight;

        const auto step = steps.take(rans, place.element_class, sizeof(T) * 8, overlong);
        const T old_bits = load_element<T>(old_block.data(), place.position);
        changes.positions[i] = static_cast<std::uint32_t>(place.position);
        store_le<T>(changes.old_bits.data() + i * sizeof(T), old_bits);
        store_le<T>(changes.new_bits.data() + i * sizeof(T), stepped(old_bits, step, order));
    }
    if (overlong) return corrupt("a step is longer than its element");
    if (!rans.finished()) return corrupt("its stream does not end with its last change");
    return {};
}

}  // namespace

Result<void> BlockDecoder::decode(std::span<const std::byte> coded,
                                  std::span<const std::byte> old_block, const DtypeTraits& traits,
                                  BlockChanges& changes) {
    changes.element_bytes = traits.element_bytes;
    if (coded.empty()) {
        changes.clear();
        return {};
    }
    // What was there is overwritten, not cleared: filling it with zeros first would take as long.
    ByteReader in(coded);
    switch (static_cast<BlockKind>(in.fixed<std::uint8_t>())) {
        case BlockKind::kSparse: return decode_sparse(in, old_block, traits, changes);
        case BlockKind::kRaw:
        case BlockKind::kSplit:
        case BlockKind::kSteps: return dense_.decode(coded, old_block, traits, changes);
        case BlockKind::kSwift: break;
    }
    return unknown_kind();
}

Result<void> BlockDecoder::decode_sparse(ByteReader& in, std::span<const std::byte> old_block,
                                         const DtypeTraits& traits, BlockChanges& changes) {
    const std::size_t count = old_block.size() / traits.element_bytes;
    WISP_ASSIGN(const SparseHeader header, parse_sparse_header(in, exponent_field(traits), count));
    RansReader rans(in.take(in.remaining()));
    if (!rans.ok()) return corrupt("its stream is too short");
    return with_element_type(traits.element_bytes, [&]<class T>(T) {
        return read_changes<T>(rans, old_block, header, traits, changes);
    });
}

}  // namespace wisp
