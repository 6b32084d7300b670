#include "checkpoint/owned_weights.hpp"

#include <algorithm>

#include "base/try.hpp"
#include "checkpoint/block_feed.hpp"

namespace wisp {
namespace {

constexpr std::uint64_t kAlignment = 64;  // a cache line

}  // namespace

Result<std::shared_ptr<OwnedWeights>> OwnedWeights::allocate(const Schema& schema) {
    const auto owned = std::make_shared<OwnedWeights>();
    owned->schema_ = schema;
    struct Place {
        std::uint64_t start, size;
    };
    std::vector<Place> places;
    std::uint64_t end = 0;
    for (const TensorInfo& tensor : schema.tensors()) {
        WISP_ASSIGN(const std::uint64_t size, byte_count_of(tensor));
        places.push_back({end, size});
        end += (size + kAlignment - 1) / kAlignment * kAlignment;
    }
    WISP_ASSIGN(owned->memory_, PageMemory::allocate(end));
    for (const Place& place : places) {
        owned->tensors_.push_back(owned->memory_.bytes().subspan(
            static_cast<std::size_t>(place.start), static_cast<std::size_t>(place.size)));
    }
    return owned;
}

Result<std::shared_ptr<OwnedWeights>> OwnedWeights::copy_of(const Weights& from) {
    WISP_ASSIGN(auto copy, allocate(from.schema()));
    for (std::size_t i = 0; i < copy->tensors_.size(); ++i) {
        std::ranges::copy(from.bytes(i), copy->tensors_[i].begin());
    }
    return copy;
}

Result<void> OwnedWeights::read(WeightStream& stream, unsigned threads, const Progress& progress) {
    BlockFeed feed(stream, schema_);
    const unsigned used = thread_count(threads);
    std::vector<Bytes> rounded(used);
    return read_blocks<bool>(
        feed, used, {"copy", &progress},
        [&](std::uint64_t index, unsigned thread) -> Result<bool> {
            const BlockRange range = feed.range(index);
            const auto block = feed.block(index, rounded[thread]);
            const std::uint64_t start = range.first_element * range.element_bytes;
            std::ranges::copy(
                block, tensors_[range.tensor].subspan(static_cast<std::size_t>(start)).begin());
            return true;
        },
        [](std::uint64_t, bool) -> Result<void> { return {}; });
}

}  // namespace wisp
