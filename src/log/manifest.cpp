#include "log/manifest.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace wisp {
namespace {

// Some 400 bytes each; a commit holds a mebibyte.
constexpr std::size_t kAnchorsKept = 256;
constexpr std::size_t kMergedDeltasKept = 512;
// Some 200 bytes each: anchors of many parts are let go before the commit is full.
constexpr std::size_t kAnchorPartsKept = 2048;

auto order_of(const MergedDelta& merged_delta) {
    return std::tuple(merged_delta.from.seq, merged_delta.to.seq);
}

std::size_t parts_of(const AnchorEntry& anchor) {
    std::size_t parts = 0;
    for (const StoredFile& file : anchor.files) parts += file.parts.size();
    return parts;
}

}  // namespace

void add_anchor(Manifest& manifest, AnchorEntry anchor) {
    std::erase_if(manifest.anchors,
                  [&](const AnchorEntry& other) { return other.state.seq == anchor.state.seq; });
    const auto at =
        std::ranges::upper_bound(manifest.anchors, anchor.state.seq, {},
                                 [](const AnchorEntry& other) { return other.state.seq; });
    manifest.anchors.insert(at, std::move(anchor));
}

void add_merged_delta(Manifest& manifest, MergedDelta merged_delta) {
    std::erase_if(manifest.merged_deltas, [&](const MergedDelta& other) {
        return other.from.seq >= merged_delta.from.seq && other.to.seq <= merged_delta.to.seq;
    });
    const auto at =
        std::ranges::upper_bound(manifest.merged_deltas, order_of(merged_delta), {}, order_of);
    manifest.merged_deltas.insert(at, std::move(merged_delta));
}

void prune(Manifest& manifest, std::uint64_t floor) {
    std::erase_if(manifest.anchors,
                  [&](const AnchorEntry& anchor) { return anchor.state.seq < floor; });
    std::erase_if(manifest.merged_deltas,
                  [&](const MergedDelta& merged_delta) { return merged_delta.from.seq < floor; });
}

void thin(Manifest& manifest) {
    std::set<std::uint64_t> chains;
    std::size_t anchors = manifest.anchors.size();
    std::size_t parts = 0;
    for (const AnchorEntry& anchor : manifest.anchors) parts += parts_of(anchor);
    const std::uint64_t newest = manifest.anchors.empty() ? 0 : manifest.anchors.back().state.seq;
    std::erase_if(manifest.anchors, [&](const AnchorEntry& anchor) {
        const bool first = chains.insert(anchor.state.chain_id).second;
        const bool surplus = anchors > kAnchorsKept || parts > kAnchorPartsKept;
        if (first || !surplus || anchor.state.seq == newest) return false;
        --anchors;
        parts -= parts_of(anchor);
        return true;
    });
    if (manifest.merged_deltas.size() > kMergedDeltasKept) {
        manifest.merged_deltas.erase(
            manifest.merged_deltas.begin(),
            manifest.merged_deltas.end() - static_cast<std::ptrdiff_t>(kMergedDeltasKept));
    }
}

}  // namespace wisp
