#include "codec/block_encoder.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "codec/block_layout.hpp"
#include "codec/hazard.hpp"
#include "codec/hazard_field.hpp"
#include "codec/position_writer.hpp"
#include "codec/step_model.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

// Below this share of changed elements a sparse block is smaller than any dense one.
constexpr std::size_t kSurelySparse = 16;
constexpr std::size_t kSampledSteps = 4096;

/// About what a sparse block would take, from the density and a sample of the steps. Leans low.
double expected_bytes(const BlockChanges& changes, std::size_t count, const DtypeTraits& traits) {
    const double density = static_cast<double>(changes.count()) / static_cast<double>(count);
    // Knowing the classes makes positions cheaper than their plain entropy; half is a safe guess.
    double bits = 0;
    if (density < 1) {
        bits = -0.5 * static_cast<double>(count) *
               (density * std::log2(density) + (1 - density) * std::log2(1 - density));
    }
    double step_bits = 0;
    std::size_t sampled = 0;
    with_element_type(traits.element_bytes, [&]<class T>(T) {
        const ValueOrder<T> order(traits.sign_magnitude);
        const std::size_t stride = std::max<std::size_t>(1, changes.count() / kSampledSteps);
        for (std::size_t i = 0; i < changes.count(); i += stride, ++sampled) {
            const auto step = step_between(load_element<T>(changes.old_bits.data(), i),
                                           load_element<T>(changes.new_bits.data(), i), order);
            step_bits += static_cast<double>(std::bit_width(step.magnitude));  // sign for the 1
        }
        return 0;
    });
    bits += step_bits / static_cast<double>(sampled) * static_cast<double>(changes.count());
    return bits / 8;
}

}  // namespace

void BlockEncoder::encode(std::span<const std::byte> old_block, const BlockChanges& changes,
                          const DtypeTraits& traits, Bytes& out) {
    if (changes.empty()) return;
    const std::size_t count = old_block.size() / traits.element_bytes;
    const std::size_t start = out.size();
    if (changes.count() < count / kSurelySparse) {
        out.push_back(static_cast<std::byte>(BlockKind::kSparse));
        encode_sparse(old_block, changes, traits, out);
        if (out.size() - start <= old_block.size()) return;
        out.resize(start);
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
    // The symbols of far steps are many; what cannot become smaller is not tried.
    if (expected_bytes(changes, count, traits) < static_cast<double>(dense_.size())) {
        out.push_back(static_cast<std::byte>(BlockKind::kSparse));
        encode_sparse(old_block, changes, traits, out);
        if (out.size() - start <= dense_.size() + 1) return;
        out.resize(start);
    }
    out.push_back(static_cast<std::byte>(kind));
    out.insert(out.end(), dense_.begin(), dense_.end());
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
