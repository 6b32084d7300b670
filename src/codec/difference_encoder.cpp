#include <algorithm>
#include <array>
#include <bit>

#include "codec/block_encoder.hpp"
#include "codec/block_layout.hpp"
#include "codec/dense_decoder.hpp"
#include "codec/position_writer.hpp"
#include "codec/step_model.hpp"
#include "kernel/elements.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

/// Takes the changes of a scan and writes their symbols while the scan reads on.
template <class T>
class ChangeWriter {
  public:
    ChangeWriter(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                 const DtypeTraits& traits, const SparseHeader& header, const TensorSeed& seed,
                 std::uint64_t first_word, RansWriter& rans, BlockChanges* keep)
        : old_block_(old_block),
          new_block_(new_block),
          window_(header.window),
          seed_(seed),
          first_word_(first_word),
          rans_(rans),
          positions_(rans, header.hazard_shift),
          order_(traits.sign_magnitude),
          keep_(keep) {
        const WeightTable weights = header.weights();
        for (std::size_t i = 0; i < weight_of_.size(); ++i) {
            weight_of_[i] = weights[window_.class_of(static_cast<std::uint8_t>(i))];
        }
    }

    static void take(void* writer, std::span<const WeightedChange> changes) {
        static_cast<ChangeWriter*>(writer)->write(changes);
    }
    EncodedDifference result;

  private:
    void write(std::span<const WeightedChange> changes) {
        result.changed_elements += changes.size();
        for (const WeightedChange& change : changes) {
            positions_.put(change.start, weight_of_[change.exponent]);
            const std::size_t position = change.position;
            steps_.put(rans_, window_.class_of(static_cast<std::uint8_t>(change.exponent)),
                       step_between(load_element<T>(old_block_.data(), position),
                                    load_element<T>(new_block_.data(), position), order_));
            touch(position * sizeof(T) / 8);
            if (keep_ != nullptr) keep_->positions.push_back(change.position);
        }
    }
    void touch(std::size_t word) {
        if (word == last_word_) return;
        last_word_ = word;
        const std::uint64_t index = first_word_ + word;
        result.touched.before +=
            mix_word(seed_, index, load_word(old_block_.data(), word * 8, old_block_.size()));
        result.touched.after +=
            mix_word(seed_, index, load_word(new_block_.data(), word * 8, new_block_.size()));
    }

    const std::span<const std::byte> old_block_;
    const std::span<const std::byte> new_block_;
    const ClassWindow window_;
    const TensorSeed seed_;
    const std::uint64_t first_word_;
    RansWriter& rans_;
    PositionWriter positions_;
    StepModel steps_;
    const ValueOrder<T> order_;
    BlockChanges* const keep_;
    std::size_t last_word_ = SIZE_MAX;
    std::array<std::uint32_t, 256> weight_of_;  // by exponent
};

}  // namespace

EncodedDifference BlockEncoder::encode_list(std::span<const std::byte> old_block,
                                            std::span<const std::byte> new_block,
                                            const DtypeTraits& traits, const TensorSeed& seed,
                                            const ScanDigest& digest, std::uint64_t first_word,
                                            Bytes& out, BlockChanges* keep) {
    const Comparison comparison = active_kernels().compare(old_block.data(), new_block.data(),
                                                           old_block.size() / traits.element_bytes,
                                                           traits.element_bytes, seed, first_word);
    if (digest.seed != nullptr) *digest.digest += comparison.old_state;
    BlockChanges& changes = keep != nullptr ? *keep : changes_;
    changes.element_bytes = traits.element_bytes;
    compare_blocks(old_block, new_block, changes);
    encode(old_block, changes, traits, out);
    return {comparison.changed, comparison.touched};
}

EncodedDifference BlockEncoder::encode_difference(std::span<const std::byte> old_block,
                                                  std::span<const std::byte> new_block,
                                                  const DtypeTraits& traits, const TensorSeed& seed,
                                                  const ScanDigest& digest,
                                                  std::uint64_t first_word, Bytes& out,
                                                  BlockChanges* keep) {
    const std::size_t count = old_block.size() / traits.element_bytes;
    SparsePlanner::Forecast forecast = planner_.forecast(old_block, new_block, traits);
    const auto encode_all = [&](const ScanDigest& still_wanted) {
        return dense_.encode_difference(old_block, new_block, traits, seed, still_wanted,
                                        first_word, out, keep);
    };
    if (forecast.changed_share * kSparseElementsPerChange >= 1) {
        if (count >= kShortBlock) return encode_all(digest);
        return encode_list(old_block, new_block, traits, seed, digest, first_word, out, keep);
    }
    if (keep != nullptr) {
        keep->clear();
        keep->element_bytes = traits.element_bytes;
        keep->positions.reserve(
            static_cast<std::size_t>(forecast.changed_share * 1.1 * static_cast<double>(count)) +
            64);
    }
    EncodedDifference difference;
    with_element_type(traits.element_bytes, [&]<class T>(T) {
        ChangeWriter<T> writer(old_block, new_block, traits, forecast.header, seed, first_word,
                               rans_, keep);
        active_kernels().scan_weighted(
            old_block.data(), new_block.data(), count, sizeof(T),
            {exponent_field(traits), forecast.header.window, forecast.header.weights(), digest,
             ChangeWriter<T>::take, &writer});
        difference = writer.result;
        return 0;
    });
    if (difference.changed_elements == 0) return difference;
    if (difference.changed_elements > count / kSparseElementsPerChange && count >= kShortBlock) {
        rans_.clear();  // the forecast was misleading
        return encode_all({});
    }
    if (keep != nullptr) {
        keep->new_bits.resize(keep->count() * traits.element_bytes);
        gather(new_block.data(), keep->positions, traits.element_bytes, keep->new_bits.data());
    }
    const std::size_t start = out.size();
    forecast.header.change_count = difference.changed_elements;
    out.push_back(static_cast<std::byte>(BlockKind::kSparse));
    write_sparse_header(forecast.header, out);
    rans_.finish(out);
    if (out.size() - start <= old_block.size()) return difference;
    out.resize(start);
    return encode_all({});
}

}  // namespace wisp
