#include "encode/block_encoder.hpp"

#include <algorithm>

#include "codec/block_layout.hpp"
#include "codec/hazard.hpp"
#include "codec/step_model.hpp"
#include "kernel/kernels.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

// Below this share of changed elements a sparse block is smaller than any dense one.
constexpr std::size_t kSurelySparse = 16;

/// Walks a block from change to change and knows the hazard between them.
template <class T>
class HazardCursor {
  public:
    HazardCursor(const std::byte* block, const SparseHeader& header, const WeightTable& weights,
                 const std::vector<std::uint32_t>& group_sums)
        : block_(block), window_(header.window), weights_(weights), group_sums_(group_sums) {}

    /// Moves to `position`, which lies at or after the present one.
    void seek(std::size_t position) {
        const std::size_t group = position / kGroupElements;
        if (group > at_ / kGroupElements) {
            for (; group_ < group; ++group_) group_start_ += group_sums_[group_];
            at_ = group * kGroupElements;
            hazard_ = group_start_;
        }
        for (; at_ < position; ++at_) hazard_ += weight_at(at_);
    }
    std::uint64_t hazard() const { return hazard_; }
    std::uint32_t class_here() const { return window_.class_of(load_element<T>(block_, at_)); }

  private:
    std::uint32_t weight_at(std::size_t position) const {
        return weights_[window_.class_of(load_element<T>(block_, position))];
    }
    const std::byte* block_;
    const ClassWindow window_;
    const WeightTable& weights_;
    const std::vector<std::uint32_t>& group_sums_;
    std::size_t at_ = 0;
    std::uint64_t hazard_ = 0;
    std::size_t group_ = 0;
    std::uint64_t group_start_ = 0;
};

/// One position symbol, after as many escapes as the distance takes.
class PositionWriter {
  public:
    PositionWriter(RansWriter& rans, unsigned shift) : rans_(rans), shift_(shift) {}

    void put(std::uint64_t hazard, std::uint32_t weight) {
        const std::uint64_t bucket = bucket_units(shift_);
        // An element across the border may be named from either side; its larger part is cheaper.
        while (hazard >= origin_ + bucket || 2 * (origin_ + bucket - hazard) < weight) {
            rans_.put(kEscapeStart, kEscapeFrequency, kHazardBits);
            origin_ += bucket;
        }
        const std::uint64_t begin = hazard > origin_ ? hazard - origin_ : 0;
        const std::uint64_t end = std::min(hazard + weight - origin_, bucket);
        const std::uint32_t start = slot_of(begin, shift_);
        rans_.put(start, slot_of(end, shift_) - start, kHazardBits);
        origin_ = hazard + weight;
    }

  private:
    RansWriter& rans_;
    const unsigned shift_;
    std::uint64_t origin_ = 0;
};

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
    const WeightTable weights = header.weights();
    write_sparse_header(header, out);
    with_element_type(traits.element_bytes, [&]<class T>(T) {
        const std::size_t count = old_block.size() / sizeof(T);
        group_sums_.resize(count / kGroupElements + 1);
        active_kernels().weigh(old_block.data(), count, sizeof(T), header.window, weights,
                               group_sums_.data());
        HazardCursor<T> cursor(old_block.data(), header, weights, group_sums_);
        PositionWriter positions(rans_, header.hazard_shift);
        StepModel steps;
        for (std::size_t i = 0; i < changes.count(); ++i) {
            cursor.seek(changes.positions[i]);
            const std::uint32_t element_class = cursor.class_here();
            positions.put(cursor.hazard(), weights[element_class]);
            const T before = to_order(load_element<T>(old_block.data(), changes.positions[i]),
                                      traits.sign_magnitude);
            const T after =
                to_order(load_element<T>(changes.new_bits.data(), i), traits.sign_magnitude);
            const T up = static_cast<T>(after - before);
            const T down = static_cast<T>(before - after);
            const bool negative = down < up;
            steps.put(rans_, element_class, negative ? down : up, negative);
        }
        return 0;
    });
    rans_.finish(out);
}

}  // namespace wisp
