#include "encode/block_encoder.hpp"

#include <algorithm>

#include "codec/block_layout.hpp"
#include "codec/hazard.hpp"
#include "codec/hazard_field.hpp"
#include "codec/step_model.hpp"
#include "encode/position_writer.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

// Below this share of changed elements a sparse block is smaller than any dense one.
constexpr std::size_t kSurelySparse = 16;

}  // namespace

void BlockEncoder::encode(std::span<const std::byte> old_block, const BlockChanges& changes,
                          const DtypeTraits& traits, Bytes& out) {
    if (changes.empty()) return;
    const std::size_t start = out.size();
    out.push_back(static_cast<std::byte>(BlockKind::kSparse));
    encode_sparse(old_block, changes, traits, out);
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
                                 Bytes& out) {
    const SparseHeader header = planner_.plan(old_block, changes, traits);
    write_sparse_header(header, out);
    HazardField field(old_block, traits.element_bytes, exponent_field(traits), header);
    PositionWriter positions(rans_, header.hazard_shift);
    StepModel steps;
    with_element_type(traits.element_bytes, [&]<class T>(T) {
        const ValueOrder<T> order(traits.sign_magnitude);
        for (std::size_t i = 0; i < changes.count(); ++i) {
            const HazardField::Place place = field.at(changes.positions[i]);
            positions.put(place.start, place.weight);
            steps.put(rans_, place.element_class,
                      step_between(load_element<T>(changes.old_bits.data(), i),
                                   load_element<T>(changes.new_bits.data(), i), order));
        }
        return 0;
    });
    rans_.finish(out);
}

}  // namespace wisp
