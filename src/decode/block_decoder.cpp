#include "decode/block_decoder.hpp"

#include <algorithm>
#include <string>

#include "codec/block_layout.hpp"
#include "codec/hazard.hpp"
#include "codec/rans.hpp"
#include "codec/sparse_header.hpp"
#include "codec/step_model.hpp"
#include "base/try.hpp"
#include "kernel/kernels.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

std::unexpected<Error> corrupt(const char* what) {
    return fail(ErrorKind::kCorrupt, std::string("coded block: ") + what);
}

/// Finds the element whose stretch of hazard holds a given point; only moves forward.
template <class T>
class HazardFinder {
  public:
    HazardFinder(std::span<const std::byte> block, const SparseHeader& header,
                 const WeightTable& weights, const std::vector<std::uint32_t>& group_sums)
        : block_(block.data()),
          count_(block.size() / sizeof(T)),
          window_(header.window),
          weights_(weights),
          group_sums_(group_sums) {}

    /// False when the point lies beyond the last element.
    bool find(std::uint64_t point) {
        while (point >= group_start_ + group_sums_[group_]) {
            group_start_ += group_sums_[group_];
            if (++group_ * kGroupElements >= count_) return false;
            at_ = group_ * kGroupElements;
            start_ = group_start_;
        }
        for (;; ++at_) {
            class_ = window_.class_of(load_element<T>(block_, at_));
            weight_ = weights_[class_];
            if (point < start_ + weight_) return true;
            start_ += weight_;
        }
    }
    std::size_t position() const { return at_; }
    std::uint64_t start() const { return start_; }
    std::uint32_t weight() const { return weight_; }
    std::uint32_t element_class() const { return class_; }

  private:
    const std::byte* block_;
    const std::size_t count_;
    const ClassWindow window_;
    const WeightTable& weights_;
    const std::vector<std::uint32_t>& group_sums_;
    std::size_t group_ = 0;
    std::uint64_t group_start_ = 0;
    std::size_t at_ = 0;
    std::uint64_t start_ = 0;
    std::uint32_t weight_ = 0;
    std::uint32_t class_ = 0;
};

template <class T>
Result<void> read_changes(RansReader& rans, std::span<const std::byte> old_block,
                          const SparseHeader& header, const WeightTable& weights,
                          const std::vector<std::uint32_t>& group_sums,
                          const DtypeTraits& traits, BlockChanges& changes) {
    const unsigned shift = header.hazard_shift;
    const std::uint64_t bucket = bucket_units(shift);
    const auto count = static_cast<std::size_t>(header.change_count);
    changes.positions.resize(count);
    changes.new_bits.resize(count * sizeof(T));
    HazardFinder<T> finder(old_block, header, weights, group_sums);
    StepModel steps;
    std::uint64_t origin = 0;
    bool overlong = false;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t slot = rans.peek(kHazardBits);
        for (; slot >= kEscapeStart && rans.ok(); slot = rans.peek(kHazardBits)) {
            rans.advance(kEscapeStart, kEscapeFrequency, kHazardBits);
            origin += bucket;
        }
        if (!rans.ok()) return corrupt("its stream ends too early");
        // Elements before `origin` are behind: the previous change ended there.
        if (!finder.find(origin + distance_at(slot, shift))) {
            return corrupt("a position lies past the end of the block");
        }
        const std::uint64_t begin = finder.start() > origin ? finder.start() - origin : 0;
        const std::uint64_t end = std::min(finder.start() + finder.weight() - origin, bucket);
        const std::uint32_t low = slot_of(begin, shift);
        rans.advance(low, slot_of(end, shift) - low, kHazardBits);
        origin = finder.start() + finder.weight();

        const auto step = steps.take(rans, finder.element_class(), sizeof(T) * 8, overlong);
        const T before =
            to_order(load_element<T>(old_block.data(), finder.position()), traits.sign_magnitude);
        const T magnitude = static_cast<T>(step.magnitude);
        const T after = static_cast<T>(step.negative ? before - magnitude : before + magnitude);
        changes.positions[i] = static_cast<std::uint32_t>(finder.position());
        store_le<T>(changes.new_bits.data() + i * sizeof(T),
                    to_order(after, traits.sign_magnitude));
    }
    if (overlong) return corrupt("a step is longer than its element");
    if (!rans.finished()) return corrupt("its stream does not end with its last change");
    return {};
}

}  // namespace

Result<void> BlockDecoder::decode(std::span<const std::byte> coded,
                                  std::span<const std::byte> old_block, const DtypeTraits& traits,
                                  BlockChanges& changes) {
    changes.clear();
    changes.element_bytes = traits.element_bytes;
    if (coded.empty()) return {};
    ByteReader in(coded);
    switch (static_cast<BlockKind>(in.fixed<std::uint8_t>())) {
        case BlockKind::kSparse: return decode_sparse(in, old_block, traits, changes);
        case BlockKind::kSplit: return decode_split(in, old_block, traits, changes);
        case BlockKind::kRaw: {
            if (in.remaining() != old_block.size()) return corrupt("raw block of another length");
            compare(old_block, in.take(in.remaining()), changes);
            return {};
        }
    }
    return fail(ErrorKind::kUnsupported,
                "coded block: unknown kind; a newer wisp wrote it, upgrade to read it");
}

void BlockDecoder::compare(std::span<const std::byte> old_block,
                           std::span<const std::byte> new_block, BlockChanges& changes) {
    const std::size_t count = old_block.size() / changes.element_bytes;
    changes.positions.resize(count);
    changes.positions.resize(active_kernels().find_changes(
        old_block.data(), new_block.data(), count, changes.element_bytes,
        changes.positions.data()));
    gather_new_bits(new_block.data(), changes);
}

Result<void> BlockDecoder::decode_sparse(ByteReader& in, std::span<const std::byte> old_block,
                                         const DtypeTraits& traits, BlockChanges& changes) {
    const std::size_t count = old_block.size() / traits.element_bytes;
    WISP_ASSIGN(const SparseHeader header,
                parse_sparse_header(in, exponent_field(traits), count));
    RansReader rans(in.take(in.remaining()));
    if (!rans.ok()) return corrupt("its stream is too short");
    const WeightTable weights = header.weights();
    group_sums_.resize(count / kGroupElements + 1);
    active_kernels().weigh(old_block.data(), count, traits.element_bytes, header.window, weights,
                           group_sums_.data());
    return with_element_type(traits.element_bytes, [&]<class T>(T) {
        return read_changes<T>(rans, old_block, header, weights, group_sums_, traits, changes);
    });
}

}  // namespace wisp
