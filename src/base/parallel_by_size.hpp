// ordered_parallel() for pieces of very different sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "wisp/result.hpp"

namespace wisp {

/// Neighbours that are small are handed out together, since handing one out takes as long as
/// working on some kilobytes. size_of(i) are bytes.
template <class T>
Result<void> ordered_parallel_by_size(
    std::uint64_t count, unsigned threads,
    const std::function<std::uint64_t(std::uint64_t)>& size_of,
    const std::function<Result<T>(std::uint64_t, unsigned)>& produce,
    const std::function<Result<void>(std::uint64_t, T)>& consume) {
    constexpr std::uint64_t kUnitBytes = 1U << 18;
    if (threads <= 1) return ordered_parallel<T>(count, threads, produce, consume);
    std::vector<std::uint64_t> starts;  // of each unit
    std::uint64_t held = kUnitBytes;
    for (std::uint64_t i = 0; i < count; ++i) {
        if (held >= kUnitBytes) {
            starts.push_back(i);
            held = 0;
        }
        held += size_of(i);
    }
    starts.push_back(count);
    return ordered_parallel<std::vector<T>>(
        starts.size() - 1, threads,
        [&](std::uint64_t unit, unsigned worker) -> Result<std::vector<T>> {
            std::vector<T> values;
            values.reserve(static_cast<std::size_t>(starts[unit + 1] - starts[unit]));
            for (std::uint64_t i = starts[unit]; i < starts[unit + 1]; ++i) {
                Result<T> value = produce(i, worker);
                if (!value) return std::unexpected(std::move(value).error());
                values.push_back(std::move(*value));
            }
            return values;
        },
        [&](std::uint64_t unit, std::vector<T> values) -> Result<void> {
            for (std::size_t i = 0; i < values.size(); ++i) {
                Result<void> taken = consume(starts[unit] + i, std::move(values[i]));
                if (!taken) return taken;
            }
            return {};
        });
}

}  // namespace wisp
