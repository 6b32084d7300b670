// What a host fetches of a step whose engine spans several hosts, in bytes on the wire, against its
// share: what its part of each tensor takes in a delta that is not sliced.
#include <gtest/gtest.h>

#include "delta/verified_delta.hpp"
#include "doubles/memory_store.hpp"
#include "doubles/metered_store.hpp"
#include "follow/slice_fetcher.hpp"
#include "publish/uploader.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

constexpr std::uint64_t kExperts = 8;

struct Spread {
    std::string name;
    std::uint64_t ranks;
    std::uint64_t hosts;
    bool by_experts;  // each rank has whole experts, else a part of each
};

class SliceShare : public ::testing::TestWithParam<Spread> {
  protected:
    SliceShare() {
        Rng rng(11);
        std::vector<Tensor> model = {random_tensor("o_proj", Dtype::kBf16, {1024, 1024}, rng),
                                     random_tensor("q_proj", Dtype::kBf16, {1024, 1024}, rng)};
        for (std::uint64_t e = 0; e < kExperts; ++e) {
            const std::string expert = "experts." + std::to_string(e);
            model.push_back(random_tensor(expert + ".down_proj", Dtype::kBf16, {1024, 512}, rng));
            model.push_back(random_tensor(expert + ".up_proj", Dtype::kBf16, {512, 1024}, rng));
        }
        write_bytes(folder_ / "old", safetensors_file(model));
        write_bytes(folder_ / "new", safetensors_file(changed_model(model, 0.02, rng)));
        for (const Tensor& tensor : model) tensors_.push_back(tensor.info);
    }

    std::uint64_t write_delta(const fs::path& path, unsigned slices) const {
        DiffOptions options;
        options.codec = Codec::kSwift;
        options.slices = slices;
        return value_of(diff(value_of(Checkpoint::open(folder_ / "old")),
                             value_of(Checkpoint::open(folder_ / "new")), path, options))
            .file_bytes;
    }

    std::vector<HeldPart> held_of(const TensorInfo& tensor, std::uint64_t rank) const {
        const Spread& spread = GetParam();
        const std::uint64_t elements = element_count_of(tensor);
        if (spread.by_experts && tensor.name.starts_with("experts.")) {
            const std::uint64_t expert = std::stoull(tensor.name.substr(8));
            if (expert * spread.ranks / kExperts != rank) return {};
            return {{0, {{elements, 1}}}};
        }
        if (!tensor.name.ends_with("o_proj") && !tensor.name.ends_with("down_proj")) {
            return {{elements / spread.ranks * rank, {{elements / spread.ranks, 1}}}};
        }
        const std::uint64_t width = tensor.shape[1] / spread.ranks;
        return {{width * rank, {{tensor.shape[0], tensor.shape[1]}, {width, 1}}}};
    }

    HeldSlices held_by(std::uint64_t host) const {
        const std::uint64_t each = GetParam().ranks / GetParam().hosts;
        HeldSlices held;
        for (const TensorInfo& tensor : tensors_) {
            auto& parts = held[tensor.name];
            for (std::uint64_t rank = host * each; rank < (host + 1) * each; ++rank) {
                for (const HeldPart& part : held_of(tensor, rank)) parts.push_back(part);
            }
        }
        return held;
    }

    /// Of the blocks of a delta that is not sliced.
    static double share_of(const VerifiedDelta& whole, const HeldSlices& held) {
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

    TempFolder folder_;
    std::vector<TensorInfo> tensors_;
};

TEST_P(SliceShare, IsAllThatAHostFetchesOfAStep) {
    const auto whole_bytes = static_cast<double>(write_delta(folder_ / "whole", 0));
    write_delta(folder_ / "sliced", 2 * static_cast<unsigned>(GetParam().hosts));
    const VerifiedDelta whole = value_of(verify_delta_file(folder_ / "whole"));
    const auto meter =
        std::make_shared<MeteredStore>(std::make_shared<MemoryStore>(system_clock()));
    const Location run{meter, "run", "memory:run"};
    Uploader uploader(run, 4, std::uint64_t{1} << 30);
    const StoredFile file = value_of(uploader.upload(folder_ / "sliced", "", delta_key, 1, 1));
    for (std::uint64_t host = 0; host < GetParam().hosts; ++host) {
        const HeldSlices held = held_by(host);
        const double share = share_of(whole, held) * whole_bytes;
        const std::uint64_t before = meter->counts().bytes_in();
        SliceFetcher fetcher(run, folder_ / ("host" + std::to_string(host)), 4);
        value_of(fetcher.fetch(file, held));
        const auto fetched = static_cast<double>(meter->counts().bytes_in() - before);
        EXPECT_LE(fetched, 1.1 * share) << "host " << host << " of a file of " << whole_bytes;
        EXPECT_GT(fetched, 0.9 * share);
    }
}

INSTANTIATE_TEST_SUITE_P(Engines, SliceShare,
                         ::testing::Values(Spread{"TP2OnTwoHosts", 2, 2, false},
                                           Spread{"TP4OnTwoHosts", 4, 2, false},
                                           Spread{"TP4OnFourHosts", 4, 4, false},
                                           Spread{"EP4OnTwoHosts", 4, 2, true}),
                         [](const auto& spread) { return spread.param.name; });

}  // namespace
}  // namespace wisp::testing
