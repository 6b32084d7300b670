#include "encode/block_encoder.hpp"

#include <algorithm>

#include "codec/block_layout.hpp"
#include "codec/hazard.hpp"
#include "codec/hazard_field.hpp"
#include "codec/step_model.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

// Below this share of changed elements a sparse block is smaller than any dense one.
constexpr std::size_t kSurelySparse = 16;

/// One position symbol, after as many escapes as the distance takes.
class PositionWriter {
  public:
    PositionWriter(RansWriter& rans, unsigned shift) : rans_(rans), shift_(shift) {}

    void put(std::uint64_t hazard, std::uint32_t weight) {
        const std::uint64_t bucket = bucket_units(shift_);
        // An element across the border may be named from either side; its larger part is cheaper.
        while (hazard >= origin_ + bucket || 2 * (origin_ + bucket - hazard) < weight) {
            rans_.put(Lane::kPosition, kEscapeStart, kEscapeFrequency, kHazardBits);
            origin_ += bucket;
        }
        const std::uint64_t begin = hazard > origin_ ? hazard - origin_ : 0;
        const std::uint64_t end = std::min(hazard + weight - origin_, bucket);
        const std::uint32_t start = slot_of(begin, shift_);
        rans_.put(Lane::kPosition, start, slot_of(end, shift_) - start, kHazardBits);
        origin_ = hazard + weight;
    }

  private:
    RansWriter& rans_;
    const unsigned shift_;
    std::uint64_t origin_ = 0;
};

}  // namespace

void BlockEncoder::encode(std::span<const std::byte> old_block, const BlockChanges& changes,
                          const DtypeTraits& traits, std::span<const std::uint8_t> exponents,
                          Bytes& out) {
    if (changes.empty()) return;
    const std::size_t start = out.size();
    out.push_back(static_cast<std::byte>(BlockKind::kSparse));
    encode_sparse(old_block, changes, traits, exponents, out);
    const std::size_t sparse_bytes = out.size() - start;
    if (changes.count() < old_block.size() / traits.element_bytes / kSurelySparse &&
        sparse_bytes <= old_block.size()) {
        return;
    }
    new_block_.assign(old_block.begin(), old_block.end());
    scatter_new_bits(changes, new_block_.data());
    dense_.clear();
    encode_split(new_block_, traits.element_bytes, dense_);
    BlockKind kind = BlockKind::kSplit;
    if (dense_.empty()) {
        kind = BlockKind::kRaw;
        dense_.swap(new_block_);
    }
    if (dense_.size() + 1 >= sparse_bytes) return;
    out.resize(start);
    out.push_back(static_cast<std::byte>(kind));
    out.insert(out.end(), dense_.begin(), dense_.end());
}

void BlockEncoder::encode_sparse(std::span<const std::byte> old_block,
                                 const BlockChanges& changes, const DtypeTraits& traits,
                                 std::span<const std::uint8_t> exponents, Bytes& out) {
    const SparseHeader header = planner_.plan(old_block, changes, traits, exponents);
    write_sparse_header(header, out);
    HazardField field(old_block, traits.element_bytes, exponent_field(traits), header, exponents);
    PositionWriter positions(rans_, header.hazard_shift);
    StepModel steps;
    with_element_type(traits.element_bytes, [&]<class T>(T) {
        const ValueOrder<T> order(traits.sign_magnitude);
        for (std::size_t i = 0; i < changes.count(); ++i) {
            const HazardField::Place place = field.at(changes.positions[i]);
            positions.put(place.start, place.weight);
            const T before = order(load_element<T>(changes.old_bits.data(), i));
            const T after = order(load_element<T>(changes.new_bits.data(), i));
            const T up = static_cast<T>(after - before);
            const T down = static_cast<T>(before - after);
            const bool negative = down < up;
            steps.put(rans_, place.element_class, {std::min(down, up), negative});
        }
        return 0;
    });
    rans_.finish(out);
}

}  // namespace wisp
