#include "encode/sparse_plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "codec/hazard.hpp"
#include "kernel/elements.hpp"

namespace wisp {
namespace {

// Enough for the shares of the populated binades; counting every element would cost as much as
// comparing them.
constexpr std::size_t kSampleElements = 1U << 14;
constexpr std::size_t kRunElements = 64;
constexpr std::size_t kLanes = 4;
// A class in which everything changed has infinite hazard; this much leaves 1/55 to the rest.
constexpr double kLargestHazard = 4.0;

/// One histogram per lane, so that equal neighbours do not wait for each other's increment.
template <class ExponentAt>
std::size_t sample_exponents(std::size_t count, std::size_t bins, ExponentAt&& exponent_at,
                             std::vector<std::uint32_t>& lanes) {
    const std::size_t stride = std::max<std::size_t>(1, count / kSampleElements) * kRunElements;
    std::size_t sampled = 0;
    for (std::size_t first = 0; first < count; first += stride) {
        const std::size_t end = std::min(first + kRunElements, count);
        for (std::size_t i = first; i < end; ++i) {
            ++lanes[(i % kLanes) * bins + exponent_at(i)];
        }
        sampled += end - first;
    }
    return sampled;
}

struct ClassCount {
    double total = 0;
    double changed = 0;
};

double probability(const ClassCount& count) {
    return (count.changed + 0.02) / (std::max(count.total, count.changed) + 0.04);
}

/// Bits that coding the mask of one class costs.
double mask_bits(const ClassCount& count) {
    if (count.changed == 0) return 0;
    const double p = probability(count);
    const double unchanged = std::max(count.total - count.changed, 0.0);
    return -count.changed * std::log2(p) - unchanged * std::log2(1 - p);
}

std::array<ClassCount, kMaxClasses> classify(const std::vector<double>& totals,
                                             const std::vector<double>& changed,
                                             std::size_t low, std::size_t top) {
    std::array<ClassCount, kMaxClasses> classes;
    for (std::size_t e = 0; e < totals.size(); ++e) {
        ClassCount& count = classes[std::min(std::max(e, low) - low, top)];
        count.total += totals[e];
        count.changed += changed[e];
    }
    return classes;
}

}  // namespace

void SparsePlanner::count_exponents(std::span<const std::byte> old_block,
                                    const BlockChanges& changes, const ExponentField& field,
                                    std::span<const std::uint8_t> exponents) {
    const std::size_t bins = field.largest() + 1;
    sampled_.assign(bins * kLanes, 0);
    totals_.assign(bins, 0);
    changed_.assign(bins, 0);
    with_element_type(changes.element_bytes, [&]<class T>(T) {
        const std::size_t count = old_block.size() / sizeof(T);
        const std::size_t sampled =
            exponents.empty()
                ? sample_exponents(
                      count, bins,
                      [&](std::size_t i) { return field.of(load_element<T>(old_block.data(), i)); },
                      sampled_)
                : sample_exponents(
                      count, bins, [&](std::size_t i) { return exponents[i]; }, sampled_);
        const double scale = static_cast<double>(count) / static_cast<double>(sampled);
        for (std::size_t i = 0; i < bins * kLanes; ++i) totals_[i % bins] += sampled_[i] * scale;
        sampled_.assign(bins * kLanes, 0);
        for (std::size_t i = 0; i < changes.count(); ++i) {
            const auto exponent = field.of(load_element<T>(changes.old_bits.data(), i));
            ++sampled_[(i % kLanes) * bins + exponent];
        }
        for (std::size_t i = 0; i < bins * kLanes; ++i) changed_[i % bins] += sampled_[i];
        return 0;
    });
}

SparseHeader SparsePlanner::plan(std::span<const std::byte> old_block,
                                 const BlockChanges& changes, const DtypeTraits& traits,
                                 std::span<const std::uint8_t> exponents) {
    SparseHeader header;
    header.change_count = changes.count();
    const ExponentField field = exponent_field(traits);
    count_exponents(old_block, changes, field, exponents);

    const auto is_changed = [](double n) { return n > 0; };
    const auto first = static_cast<std::size_t>(
        std::find_if(changed_.begin(), changed_.end(), is_changed) - changed_.begin());
    const auto last = changed_.size() - 1 -
                      static_cast<std::size_t>(
                          std::find_if(changed_.rbegin(), changed_.rend(), is_changed) -
                          changed_.rbegin());
    // One class below and one above, where nothing changed, keep the unchanged from diluting the
    // rates of the outermost; they weigh nothing.
    const std::size_t lowest = first > 0 ? first - 1 : first;
    const std::size_t highest = last < field.largest() ? last + 1 : last;
    std::size_t low = lowest;
    std::size_t top = std::min<std::size_t>(highest - lowest, kMaxClasses - 1);
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
    double largest = 0;
    for (std::size_t i = 0; i <= top; ++i) {
        if (classes[i].changed == 0) continue;
        const double unchanged = std::max(1 - probability(classes[i]), 1e-9);
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
