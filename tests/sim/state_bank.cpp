#include "sim/state_bank.hpp"

#include <algorithm>

#include "wisp/checkpoint.hpp"

namespace wisp::sim {

Model::Model(Schema schema, Random& random) : schema_(std::move(schema)) {
    for (const TensorInfo& tensor : schema_.tensors()) {
        Bytes bytes(static_cast<std::size_t>(byte_count_of(tensor).value()));
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
        tensors_.push_back(std::move(bytes));
    }
}

void Model::train(double share, Random& random) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const std::size_t width = traits_of(schema_.tensors()[i].dtype).element_bytes;
        for (std::size_t at = 0; at < tensors_[i].size(); at += width) {
            if (!random.chance(share)) continue;
            // The low byte moves as an optimiser's steps do; now and then anything happens.
            if (random.chance(0.9)) {
                tensors_[i][at] ^= static_cast<std::byte>(1 + random.below(3));
            } else {
                tensors_[i][at + random.below(width)] ^= static_cast<std::byte>(random.below(256));
            }
        }
    }
}

Model make_model(unsigned variant, Random& random) {
    std::vector<TensorInfo> tensors{{"a.weight", Dtype::kBf16, {11, 13}},
                                    {"b.bias", Dtype::kF32, {17 + variant}},
                                    {"c.scale", Dtype::kBf16, {5}}};
    if (variant % 2 == 1) tensors.push_back({"d.head", Dtype::kF32, {9}});
    return Model(Schema::make(std::move(tensors)).value(), random);
}

StateDigest StateBank::remember(const Model& model) {
    const StateDigest digest = digest_of(model, 1).value();
    auto& kept = states_[{digest.a, digest.b}];
    if (!kept) kept = std::make_shared<Model>(model);
    return digest;
}

const Model* StateBank::find(const StateDigest& digest) const {
    const auto found = states_.find({digest.a, digest.b});
    return found == states_.end() ? nullptr : found->second.get();
}

bool StateBank::holds(const Weights& weights, const StateDigest& digest) const {
    const Model* model = find(digest);
    if (model == nullptr || model->schema().digest() != weights.schema().digest()) return false;
    for (std::size_t i = 0; i < model->schema().tensors().size(); ++i) {
        if (!std::ranges::equal(model->bytes(i), weights.bytes(i))) return false;
    }
    return true;
}

}  // namespace wisp::sim
