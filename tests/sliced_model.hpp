// A model whose tensors a sliced delta cuts in every way, and the states it goes through.
#pragma once

#include "temp_checkpoints.hpp"
#include "wisp/delta.hpp"
#include "wisp/weights.hpp"

namespace wisp::testing {

class SlicedSteps {
  public:
    explicit SlicedSteps(std::size_t steps, double share = 0.004) {
        Rng rng(7);
        states_.push_back({random_tensor("a.norm", Dtype::kBf16, {1001}, rng),
                           random_tensor("a.o_proj.weight", Dtype::kBf16, {1024, 512}, rng),
                           random_tensor("a.q_proj.weight", Dtype::kBf16, {512, 1024}, rng),
                           random_tensor("b.down_proj.weight", Dtype::kBf16, {700, 1536}, rng),
                           random_tensor("c.experts", Dtype::kF32, {4, 128, 512}, rng)});
        for (std::size_t i = 1; i < steps; ++i) {
            states_.push_back(changed_model(states_.back(), share, rng));
        }
        for (std::size_t i = 0; i < steps; ++i) {
            write_bytes(state(i), safetensors_file(states_[i]));
        }
    }
    fs::path state(std::size_t i) const { return folder_ / ("state" + std::to_string(i)); }
    const std::vector<Tensor>& tensors(std::size_t i) const { return states_[i]; }
    const TempFolder& folder() const { return folder_; }
    fs::path delta(std::size_t from, std::size_t to, unsigned slices = 4) const {
        const fs::path path = folder_ / ("delta" + std::to_string(from) + "-" + std::to_string(to) +
                                         "-" + std::to_string(slices));
        DiffOptions options;
        options.codec = Codec::kSwift;
        options.slices = slices;
        options.step = to;
        options.threads = 2;
        value_of(diff(value_of(Checkpoint::open(state(from))),
                      value_of(Checkpoint::open(state(to))), path, options));
        return path;
    }
    bool holds(const fs::path& path, std::size_t i) const {
        const Checkpoint checkpoint = value_of(Checkpoint::open(path));
        for (std::size_t t = 0; t < states_[i].size(); ++t) {
            if (!std::ranges::equal(checkpoint.bytes(t), states_[i][t].bytes)) return false;
        }
        return true;
    }

    /// What one of two hosts holds: columns of the layers that are split so, else rows.
    HeldSlices half(std::uint64_t host) const {
        return {{"a.norm", {{0, {{1001, 1}}}}},
                {"a.o_proj.weight", {{host * 256, {{1024, 512}, {256, 1}}}}},
                {"a.q_proj.weight", {{host * 256 * 1024, {{256, 1024}, {1024, 1}}}}},
                {"b.down_proj.weight", {{host * 768, {{700, 1536}, {768, 1}}}}},
                {"c.experts", {{host * 2 * 128 * 512, {{2 * 128 * 512, 1}}}}}};
    }

  private:
    TempFolder folder_;
    std::vector<std::vector<Tensor>> states_;
};

}  // namespace wisp::testing
