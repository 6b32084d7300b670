// A model that takes steps: a checkpoint on disk for each, and the deltas between them.
#pragma once

#include "checkpoint/shard_index.hpp"
#include "temp_checkpoints.hpp"
#include "wisp/delta.hpp"

namespace wisp::testing {

class CheckpointSteps {
  public:
    explicit CheckpointSteps(std::size_t steps, double share = 0.02) {
        Rng rng(99);
        states_.push_back(small_model(rng));
        for (std::size_t i = 1; i < steps; ++i) {
            states_.push_back(changed_model(states_.back(), share, rng));
        }
        for (std::size_t i = 0; i < steps; ++i) {
            write_bytes(state(i), safetensors_file(states_[i], {{"step", std::to_string(i)}}));
        }
    }

    fs::path state(std::size_t i) const { return folder_ / ("state" + std::to_string(i)); }
    const std::vector<Tensor>& tensors(std::size_t i) const { return states_[i]; }
    const TempFolder& folder() const { return folder_; }

    fs::path delta(std::size_t from, std::size_t to, Codec codec = Codec::kCompact) const {
        const fs::path path = folder_ / ("delta" + std::to_string(from) + "-" + std::to_string(to) +
                                         std::string(name_of(codec)));
        DiffOptions options;
        options.step = to;
        options.codec = codec;
        options.threads = 2;
        value_of(diff(value_of(Checkpoint::open(state(from))),
                      value_of(Checkpoint::open(state(to))), path, options));
        return path;
    }

    /// Whether the tensors at `path` are those of state `i`, bit for bit.
    bool holds(const fs::path& path, std::size_t i) const {
        const Checkpoint checkpoint = value_of(Checkpoint::open(path));
        for (std::size_t t = 0; t < states_[i].size(); ++t) {
            if (!std::ranges::equal(checkpoint.bytes(t), states_[i][t].bytes)) return false;
        }
        return checkpoint.schema().tensors().size() == states_[i].size();
    }

    StateDigest digest(std::size_t i) const {
        return value_of(digest_of(value_of(Checkpoint::open(state(i)))));
    }

    /// State `i` as a folder of two shards with its index and another file.
    fs::path sharded(std::size_t i) const {
        const fs::path path = folder_ / ("sharded" + std::to_string(i));
        fs::create_directory(path);
        const auto middle = states_[i].begin() + 3;
        write_bytes(path / "m-1.safetensors",
                    safetensors_file({states_[i].begin(), middle}, {{"step", "8"}}));
        write_bytes(path / "m-2.safetensors", safetensors_file({middle, states_[i].end()}));
        std::string map;
        for (std::size_t t = 0; t < states_[i].size(); ++t) {
            map += (t > 0 ? ",\"" : "\"") + states_[i][t].info.name + "\":\"" +
                   (t < 3 ? "m-1" : "m-2") + ".safetensors\"";
        }
        write_bytes(path / kShardIndexName, as_bytes("{\"weight_map\":{" + map + "}}"));
        write_bytes(path / "config.json", as_bytes("{}"));
        return path;
    }

  private:
    TempFolder folder_;
    std::vector<std::vector<Tensor>> states_;
};

}  // namespace wisp::testing
