#include "codec/block_encoder.hpp"

#include <algorithm>
#include <cmath>

#include "codec/block_layout.hpp"
#include "codec/hazard.hpp"
#include "codec/hazard_field.hpp"
#include "codec/position_writer.hpp"
#include "codec/step_model.hpp"
#include "kernel/elements.hpp"

namespace wisp {
namespace {

/// About what a sparse block would take, from the density and a sample of the steps. Leans low.
double expected_bytes(const BlockChanges& changes, std::size_t count, const DtypeTraits& traits) {
    const double density = static_cast<double>(changes.count()) / static_cast<double>(count);
    // Knowing the classes makes positions cheaper than their plain entropy; half is a safe guess.
    double bits = 0;
    if (density < 1) {
        bits = -0.5 * static_cast<double>(count) *
               (density * std::log2(density) + (1 - density) * std::log2(1 - density));
    }
    bits += expected_step_bits(changes, traits.sign_magnitude);
    return bits / 8;
}

}  // namespace

void BlockEncoder::encode(std::span<const std::byte> old_block, const BlockChanges& changes,
                          const DtypeTraits& traits, Bytes& out) {
    if (changes.empty()) return;
    const std::size_t count = old_block.size() / traits.element_bytes;
    const std::size_t start = out.size();
    if (changes.count() <= count / kSparseElementsPerChange) {
        out.push_back(static_cast<std::byte>(BlockKind::kSparse));
        encode_sparse(old_block, changes, traits, out);
        if (out.size() - start <= old_block.size()) return;
        out.resize(start);
    }
    const auto new_block = dense_.new_block(old_block, changes);
    const double dense_bytes = dense_.plan(old_block, new_block, traits);
    // The tables of a dense block are dear to a short one.
    if (count < kShortBlock && expected_bytes(changes, count, traits) < dense_bytes) {
        out.push_back(static_cast<std::byte>(BlockKind::kSparse));
        encode_sparse(old_block, changes, traits, out);
        if (static_cast<double>(out.size() - start) <= dense_bytes) return;
        out.resize(start);
    }
    dense_.encode(old_block, new_block, traits, out);
}

void BlockEncoder::encode_sparse(std::span<const std::byte> old_block, const BlockChanges& changes,
                                 const DtypeTraits& traits, Bytes& out) {
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
