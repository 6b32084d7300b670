#include "codec/dense_encoder.hpp"

#include <algorithm>
#include <bit>

#include "codec/step_model.hpp"
#include "kernel/scatter.hpp"

namespace wisp {

void DenseEncoder::encode(std::span<const std::byte> old_block, const BlockChanges& changes) {
    new_block_.assign(old_block.begin(), old_block.end());
    scatter_new_bits(changes, new_block_.data());
    body_.clear();
    encode_split(new_block_, changes.element_bytes, body_);
    kind_ = body_.empty() ? BlockKind::kRaw : BlockKind::kSplit;
    if (kind_ == BlockKind::kRaw) body_.swap(new_block_);
}

void DenseEncoder::append_to(Bytes& out) const {
    out.push_back(static_cast<std::byte>(kind_));
    out.insert(out.end(), body_.begin(), body_.end());
}

double expected_step_bits(const BlockChanges& changes, bool sign_magnitude) {
    constexpr std::size_t kSampledSteps = 4096;
    double bits = 0;
    std::size_t sampled = 0;
    with_element_type(changes.element_bytes, [&]<class T>(T) {
        const ValueOrder<T> order(sign_magnitude);
        const std::size_t stride = std::max<std::size_t>(1, changes.count() / kSampledSteps);
        for (std::size_t i = 0; i < changes.count(); i += stride, ++sampled) {
            const Step step = step_between(load_element<T>(changes.old_bits.data(), i),
                                           load_element<T>(changes.new_bits.data(), i), order);
            bits += static_cast<double>(std::bit_width(step.magnitude));  // sign for the 1
        }
        return 0;
    });
    return bits / static_cast<double>(sampled) * static_cast<double>(changes.count());
}

}  // namespace wisp
