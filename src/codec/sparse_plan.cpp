#include "codec/sparse_plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "codec/hazard.hpp"
#include "kernel/elements.hpp"
#include "kernel/kernels.hpp"

namespace wisp {
namespace {

// Enough for the shares of the populated binades; counting every element would cost as much as
// comparing them.
constexpr std::size_t kSampleElements = 1U << 14;
constexpr std::size_t kRunElements = 64;
constexpr std::size_t kLanes = 4;
// A class in which everything changed has infinite hazard; this much leaves 1/55 to the rest.
constexpr double kLargestHazard = 4.0;

// A forecast looks at runs of this many elements, spread over the block, until it has seen enough
// changes to know their rates to a few per cent, or a quarter of the block.
constexpr std::size_t kLookElements = 4096;
constexpr std::size_t kLookStride = 4 * kLookElements;
constexpr std::size_t kSmallBlock = 1U << 16;  // looked at as a whole
constexpr std::size_t kEnoughChanges = 300;

/// One histogram per lane, so that equal neighbours do not wait for each other's increment.
template <class T>
void count_run(const std::byte* bits, std::size_t first, std::size_t end,
               const ExponentField& field, std::vector<std::uint32_t>& lanes) {
    const std::size_t bins = field.largest() + 1;
    for (std::size_t i = first; i < end; ++i) {
        ++lanes[(i % kLanes) * bins + field.of(load_element<T>(bits, i))];
    }
}

void add_lanes(std::vector<std::uint32_t>& lanes, double scale, std::vector<double>& histogram) {
    const std::size_t bins = histogram.size();
    for (std::size_t bin = 0; bin < bins; ++bin) {
        std::uint32_t count = 0;
        for (std::size_t lane = 0; lane < kLanes; ++lane) count += lanes[lane * bins + bin];
        histogram[bin] += count * scale;
    }
    std::ranges::fill(lanes, 0);
}

struct ClassCount {
    double total = 0;
    double changed = 0;
};

/// `guess` for counts from a part of the block: what was not seen there may still come.
double probability(const ClassCount& count, bool guess = false) {
    const double prior = guess ? 0.3 : 0.02;
    return (count.changed + prior) / (std::max(count.total, count.changed) + 2 * prior);
}

/// Bits that coding the mask of one class costs.
double mask_bits(const ClassCount& count) {
    if (count.changed == 0) return 0;
    const double p = probability(count);
    const double unchanged = std::max(count.total - count.changed, 0.0);
    return -count.changed * std::log2(p) - unchanged * std::log2(1 - p);
}

std::array<ClassCount, kMaxClasses> classify(const std::vector<double>& totals,
                                             const std::vector<double>& changed, std::size_t low,
                                             std::size_t top) {
    std::array<ClassCount, kMaxClasses> classes;
    for (std::size_t e = 0; e < totals.size(); ++e) {
        ClassCount& count = classes[std::min(std::max(e, low) - low, top)];
        count.total += totals[e];
        count.changed += changed[e];
    }
    return classes;
}

}  // namespace

void SparsePlanner::reset(const ExponentField& field) {
    const std::size_t bins = field.largest() + 1;
    lanes_.assign(bins * kLanes, 0);
    totals_.assign(bins, 0);
    changed_.assign(bins, 0);
}

SparseHeader SparsePlanner::plan(std::span<const std::byte> old_block, const BlockChanges& changes,
                                 const DtypeTraits& traits) {
    const ExponentField field = exponent_field(traits);
    reset(field);
    with_element_type(traits.element_bytes, [&]<class T>(T) {
        const std::size_t count = old_block.size() / sizeof(T);
        const std::size_t stride = std::max<std::size_t>(1, count / kSampleElements) * kRunElements;
        std::size_t sampled = 0;
        for (std::size_t first = 0; first < count; first += stride) {
            const std::size_t end = std::min(first + kRunElements, count);
            count_run<T>(old_block.data(), first, end, field, lanes_);
            sampled += end - first;
        }
        add_lanes(lanes_, static_cast<double>(count) / static_cast<double>(sampled), totals_);
        count_run<T>(changes.old_bits.data(), 0, changes.count(), field, lanes_);
        add_lanes(lanes_, 1, changed_);
        return 0;
    });
    SparseHeader header = choose(field, false);
    header.change_count = changes.count();
    return header;
}

SparsePlanner::Forecast SparsePlanner::forecast(std::span<const std::byte> old_block,
                                                std::span<const std::byte> new_block,
                                                const DtypeTraits& traits) {
    const ExponentField field = exponent_field(traits);
    reset(field);
    positions_.resize(kLookElements);
    std::size_t looked = 0;
    std::size_t found = 0;
    with_element_type(traits.element_bytes, [&]<class T>(T) {
        const std::size_t count = old_block.size() / sizeof(T);
        const std::size_t stride = count <= kSmallBlock ? kLookElements : kLookStride;
        // Spread over the whole block first, then again in between: stopping early is no bias.
        const std::size_t looks = (count + stride - 1) / stride;
        constexpr std::size_t kSweeps = 4;
        for (std::size_t sweep = 0; sweep < kSweeps; ++sweep) {
            if (found >= kEnoughChanges) break;
            for (std::size_t look = sweep; look < looks; look += kSweeps) {
                const std::size_t first = look * stride;
                const std::size_t size = std::min(kLookElements, count - first);
                const std::byte* const old_run = old_block.data() + first * sizeof(T);
                const std::size_t changed =
                    active_kernels().scan(old_run, new_block.data() + first * sizeof(T), size,
                                          sizeof(T), positions_.data(), {});
                for (std::size_t i = 0; i < changed; ++i) {
                    ++changed_[field.of(load_element<T>(old_run, positions_[i]))];
                }
                const std::size_t counted = std::min<std::size_t>(size, kLookElements / 8);
                count_run<T>(old_run, 0, counted, field, lanes_);
                looked += size;
                found += changed;
            }
        }
        return 0;
    });
    Forecast forecast;
    const auto counted =
        static_cast<double>(std::accumulate(lanes_.begin(), lanes_.end(), std::uint64_t{0}));
    add_lanes(lanes_, counted == 0 ? 0 : static_cast<double>(looked) / counted, totals_);
    forecast.changed_share =
        looked == 0 ? 0 : static_cast<double>(found) / static_cast<double>(looked);
    forecast.header = choose(field, true);
    return forecast;
}

SparseHeader SparsePlanner::choose(const ExponentField& field, bool weigh_all) const {
    SparseHeader header;
    const auto is_changed = [](double n) { return n > 0; };
    const auto found = std::find_if(changed_.begin(), changed_.end(), is_changed);
    const auto first = found == changed_.end() ? std::size_t{0}
                                               : static_cast<std::size_t>(found - changed_.begin());
    const auto last =
        changed_.size() - 1 -
        static_cast<std::size_t>(std::find_if(changed_.rbegin(), changed_.rend(), is_changed) -
                                 changed_.rbegin()) %
            changed_.size();
    // One class below and one above, where nothing changed, keep the unchanged from diluting the
    // rates of the outermost.
    const std::size_t lowest = first > 0 ? first - 1 : first;
    const std::size_t highest = last < field.largest() ? last + 1 : last;
    std::size_t low = lowest;
    const std::size_t top = std::min<std::size_t>(highest - lowest, kMaxClasses - 1);
    if (highest - lowest > top) {
        double best = INFINITY;
        for (std::size_t candidate = lowest; candidate + top <= highest; ++candidate) {
            double bits = 0;
            for (const ClassCount& count : classify(totals_, changed_, candidate, top)) {
                bits += mask_bits(count);
            }
            if (bits < best) {
                best = bits;
                low = candidate;
            }
        }
    }
    header.window.low = static_cast<std::uint8_t>(low);
    header.window.top = static_cast<std::uint8_t>(top);

    const auto classes = classify(totals_, changed_, low, top);
    std::array<double, kMaxClasses> hazards{};
    double largest = 1e-6;
    for (std::size_t i = 0; i <= top; ++i) {
        if (classes[i].changed == 0 && !weigh_all) continue;
        const double unchanged = std::max(1 - probability(classes[i], weigh_all), 1e-9);
        hazards[i] = std::min(-std::log(unchanged), kLargestHazard);
        largest = std::max(largest, hazards[i]);
    }
    const int shift = static_cast<int>(std::floor(std::log2(kMaxWeight / largest)));
    header.hazard_shift = static_cast<unsigned>(
        std::clamp(shift, static_cast<int>(kMinHazardShift), static_cast<int>(kMaxHazardShift)));
    for (std::size_t i = 0; i <= top; ++i) {
        if (hazards[i] == 0) continue;
        header.weight_codes[i] = static_cast<std::uint8_t>(
            code_of_weight(hazards[i] * std::ldexp(1.0, static_cast<int>(header.hazard_shift))));
    }
    return header;
}

}  // namespace wisp
