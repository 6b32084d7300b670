// What a host fetches of a step whose engine spans several hosts, and of an anchor to join with,
// against its share: one layer of a dense model and one of a mixture of experts, in bf16, at two
// densities, published into a folder and fetched by the code that followers run. The share is what
// the host's part of each tensor takes in a delta that is not sliced; an anchor is one from zeros.
//
//   wisp_slices [JSON or -] [joins]        joins: those alone
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "delta/verified_delta.hpp"
#include "doubles/metered_store.hpp"
#include "follow/slice_fetcher.hpp"
#include "publish/uploader.hpp"
#include "simulated_training.hpp"
#include "wisp/delta.hpp"

namespace {

using namespace wisp;
namespace fs = std::filesystem;

constexpr std::uint64_t kExperts = 32;  // a quarter of the layer's, each of its true shape

template <class T>
T sure(Result<T> result) {
    if (!result) {
        fmt::print(stderr, "{}\n", result.error().text);
        std::exit(1);
    }
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// How engines of the field split a layer among ranks.
enum class Split { kRows, kColumns, kNone, kExpert };

struct Layer {
    std::string name;
    std::vector<TensorInfo> tensors;
    std::vector<Split> splits;

    void add(const std::string& tensor, std::uint64_t rows, std::uint64_t columns, Split split) {
        std::vector<std::uint64_t> shape = {rows};
        if (columns > 0) shape.push_back(columns);
        tensors.push_back({"model.layers.0." + tensor, Dtype::kBf16, std::move(shape)});
        splits.push_back(split);
    }
    void sort() {
        std::vector<std::size_t> order(tensors.size());
        std::iota(order.begin(), order.end(), 0U);
        std::ranges::sort(order, {}, [&](std::size_t i) { return tensors[i].name; });
        Layer sorted{name, {}, {}};
        for (const std::size_t i : order) {
            sorted.tensors.push_back(tensors[i]);
            sorted.splits.push_back(splits[i]);
        }
        *this = std::move(sorted);
    }
};

Layer dense_layer() {
    Layer layer{"dense (Llama 3 8B, one layer)", {}, {}};
    layer.add("self_attn.q_proj.weight", 4096, 4096, Split::kRows);
    layer.add("self_attn.k_proj.weight", 1024, 4096, Split::kRows);
    layer.add("self_attn.v_proj.weight", 1024, 4096, Split::kRows);
    layer.add("self_attn.o_proj.weight", 4096, 4096, Split::kColumns);
    layer.add("mlp.gate_proj.weight", 14336, 4096, Split::kRows);
    layer.add("mlp.up_proj.weight", 14336, 4096, Split::kRows);
    layer.add("mlp.down_proj.weight", 4096, 14336, Split::kColumns);
    layer.add("input_layernorm.weight", 4096, 0, Split::kNone);
    layer.add("post_attention_layernorm.weight", 4096, 0, Split::kNone);
    layer.sort();
    return layer;
}

/// `by_experts`: each rank has whole experts, else a part of each.
Layer mixture_layer(bool by_experts) {
    Layer layer{"mixture of experts (Qwen3 30B-A3B, one layer)", {}, {}};
    layer.add("self_attn.q_proj.weight", 4096, 2048, Split::kRows);
    layer.add("self_attn.k_proj.weight", 512, 2048, Split::kRows);
    layer.add("self_attn.v_proj.weight", 512, 2048, Split::kRows);
    layer.add("self_attn.o_proj.weight", 2048, 4096, Split::kColumns);
    layer.add("mlp.gate.weight", kExperts, 2048, Split::kNone);
    layer.add("input_layernorm.weight", 2048, 0, Split::kNone);
    layer.add("post_attention_layernorm.weight", 2048, 0, Split::kNone);
    for (std::uint64_t e = 0; e < kExperts; ++e) {
        const std::string at = fmt::format("mlp.experts.{}.", e);
        const auto split = [&](Split otherwise) { return by_experts ? Split::kExpert : otherwise; };
        layer.add(at + "gate_proj.weight", 768, 2048, split(Split::kRows));
        layer.add(at + "up_proj.weight", 768, 2048, split(Split::kRows));
        layer.add(at + "down_proj.weight", 2048, 768, split(Split::kColumns));
    }
    layer.sort();
    return layer;
}

constexpr float kJoin = 0;  // instead of a learning rate: from zeros

/// Old and new weights in memory.
class Pair {
  public:
    Pair(const Layer& layer, float learning_rate) : old_(layer.tensors), new_(layer.tensors) {
        for (std::size_t i = 0; i < layer.tensors.size(); ++i) {
            const simulation::AdamW optimizer{.learning_rate = learning_rate};
            simulation::fill_pair({i + 1, 0}, 0.035F, optimizer, old_.bits[i], new_.bits[i]);
            if (learning_rate == kJoin) std::ranges::fill(old_.bits[i], std::uint16_t{0});
        }
    }
    struct State : Weights {
        explicit State(const std::vector<TensorInfo>& tensors)
            : schema_(sure(Schema::make(tensors))) {
            for (const TensorInfo& tensor : tensors) bits.emplace_back(element_count_of(tensor));
        }
        const Schema& schema() const override { return schema_; }
        std::span<const std::byte> bytes(std::size_t i) const override {
            return std::as_bytes(std::span(bits[i]));
        }
        Schema schema_;
        std::vector<std::vector<std::uint16_t>> bits;
    };
    std::uint64_t write(const fs::path& path, unsigned slices) const {
        DiffOptions options;
        options.codec = Codec::kSwift;
        options.slices = slices;
        const DiffReport report = sure(diff(old_, new_, path, options));
        changed_share = static_cast<double>(report.changed_elements) /
                        static_cast<double>(report.total_elements);
        return report.file_bytes;
    }
    mutable double changed_share = 0;

  private:
    State old_;
    State new_;
};

std::uint64_t expert_of(const std::string& name) {
    return std::stoull(name.substr(name.find("experts.") + 8));
}

/// What the ranks from `first` up to `past`, of `ranks`, hold.
HeldSlices held_by(const Layer& layer, std::uint64_t first, std::uint64_t past,
                   std::uint64_t ranks) {
    HeldSlices held;
    for (std::size_t i = 0; i < layer.tensors.size(); ++i) {
        const auto& shape = layer.tensors[i].shape;
        const std::uint64_t elements = element_count_of(layer.tensors[i]);
        for (std::uint64_t rank = first; rank < past; ++rank) {
            auto& parts = held[layer.tensors[i].name];
            if (layer.splits[i] == Split::kNone) parts = {{0, {{elements, 1}}}};
            if (layer.splits[i] == Split::kRows) {
                parts.push_back({elements / ranks * rank, {{elements / ranks, 1}}});
            }
            if (layer.splits[i] == Split::kColumns) {
                const std::uint64_t width = shape[1] / ranks;
                parts.push_back({width * rank, {{shape[0], shape[1]}, {width, 1}}});
            }
            if (layer.splits[i] == Split::kExpert &&
                expert_of(layer.tensors[i].name) * ranks / kExperts == rank) {
                parts.push_back({0, {{elements, 1}}});
            }
        }
    }
    return held;
}

/// Of what a delta that is not sliced holds: the part of each tensor that is held, and as much of
/// the rest of the file.
double share_of(const VerifiedDelta& whole, const HeldSlices& held) {
    double share = 0;
    for (const DeltaTensor& tensor : whole.tensors()) {
        std::uint64_t elements = 0;
        for (const HeldPart& part : held.at(tensor.info.name)) {
            std::uint64_t count = 1;
            for (const auto& dimension : part.dimensions) count *= dimension.size;
            elements += count;
        }
        share += static_cast<double>(tensor.stored_bytes) * static_cast<double>(elements) /
                 static_cast<double>(element_count_of(tensor.info));
    }
    return share / static_cast<double>(whole.payload_bytes());
}

struct Case {
    std::string name;  // ranks / hosts
    bool mixture;
    bool by_experts;
    std::uint64_t ranks;
    std::uint64_t hosts;
};

/// Of the host that fetches most, for its share.
nlohmann::ordered_json measure(const Case& split, float learning_rate, const fs::path& folder) {
    const Layer layer = split.mixture ? mixture_layer(split.by_experts) : dense_layer();
    const Pair pair(layer, learning_rate);
    const std::uint64_t whole_bytes = pair.write(folder / "whole", 0);
    const std::uint64_t sliced_bytes =
        pair.write(folder / "sliced", 2 * static_cast<unsigned>(split.hosts));
    const VerifiedDelta whole = sure(verify_delta_file(folder / "whole"));
    const auto meter =
        std::make_shared<MeteredStore>(sure(open_location((folder / "bucket").string())).store);
    const Location run{meter, "run", "bench"};
    Uploader uploader(run, 4, std::uint64_t{1} << 40);
    const StoredFile file = sure(uploader.upload(folder / "sliced", "", delta_key, 1, 1));
    nlohmann::ordered_json row = {{"ratio", -1.0}};
    for (std::uint64_t host = 0; host < split.hosts; ++host) {
        const std::uint64_t each = split.ranks / split.hosts;
        const HeldSlices held = held_by(layer, host * each, (host + 1) * each, split.ranks);
        const double share = share_of(whole, held) * static_cast<double>(whole_bytes);
        const auto before = meter->counts().of(StoreOperation::kRead);
        SliceFetcher fetcher(run, folder / fmt::format("host{}", host), 4);
        sure(fetcher.fetch(file, held));
        const auto after = meter->counts().of(StoreOperation::kRead);
        const auto fetched = static_cast<double>(after.bytes - before.bytes);
        if (fetched / share <= row["ratio"].get<double>()) continue;
        row = {{"layer", layer.name},
               {"split", split.name},
               {"changed", pair.changed_share},
               {"whole_bytes", whole_bytes},
               {"sliced_bytes", sliced_bytes},
               {"share_bytes", share},
               {"fetched_bytes", fetched},
               {"ratio", fetched / share},
               {"requests", after.requests - before.requests}};
    }
    return row;
}

}  // namespace

int main(int argc, char** argv) {
    const fs::path folder = fs::temp_directory_path() / fmt::format("wisp-slices-{}", ::getpid());
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    fmt::print("{:46} {:9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>6} {:>8}\n", "layer", "split",
               "changed", "whole", "sliced", "share", "fetched", "ratio", "requests");
    for (const Case& split :
         {Case{"TP=2 / 2", false, false, 2, 2}, Case{"TP=4 / 2", false, false, 4, 2},
          Case{"TP=4 / 4", false, false, 4, 4}, Case{"TP=2 / 2", true, false, 2, 2},
          Case{"TP=4 / 2", true, false, 4, 2}, Case{"TP=4 / 4", true, false, 4, 4},
          Case{"EP=4 / 2", true, true, 4, 2}}) {
        for (const float learning_rate : {1e-6F, 3e-7F, kJoin}) {
            if (argc > 2 && learning_rate != kJoin) continue;
            fs::create_directories(folder);
            const auto row = measure(split, learning_rate, folder);
            fs::remove_all(folder);
            fmt::print("{:46} {:9} {:7.2f}% {:9} {:9} {:9.0f} {:9.0f} {:6.3f} {:8}\n",
                       row["layer"].get<std::string>(), split.name,
                       100 * row["changed"].get<double>(), row["whole_bytes"].get<std::uint64_t>(),
                       row["sliced_bytes"].get<std::uint64_t>(), row["share_bytes"].get<double>(),
                       row["fetched_bytes"].get<double>(), row["ratio"].get<double>(),
                       row["requests"].get<std::uint64_t>());
            rows.push_back(row);
        }
    }
    if (argc > 1 && std::string_view(argv[1]) != "-") {
        std::ofstream(argv[1]) << rows.dump(1) << "\n";
    }
    return 0;
}
