// How close detection, coding and applying come to the speed of memory.
//
// Every figure is a ratio to a plain vectorised compare of the same two arrays, taken in the same
// run, rounds interleaved, medians of the rounds: absolute times mean little on shared machines.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "checkpoint/blocks.hpp"
#include "codec/block_decoder.hpp"
#include "codec/block_encoder.hpp"
#include "codec/swift_decoder.hpp"
#include "delta/delta_writer.hpp"
#include "kernel/scatter.hpp"
#include "simulated_training.hpp"
#include "wisp/delta.hpp"

namespace {

using namespace wisp;

constexpr std::uint64_t kBlock = std::uint64_t{1} << kLog2BlockElements;

__attribute__((target_clones("arch=x86-64-v4", "avx2", "default"))) std::uint64_t count_differing(
    const std::uint16_t* x, const std::uint16_t* y, std::size_t count) {
    std::uint64_t total = 0;
    while (count > 0) {
        const std::size_t part = std::min<std::size_t>(count, 32768);
        std::uint16_t differing = 0;
        for (std::size_t i = 0; i < part; ++i) {
            differing = static_cast<std::uint16_t>(differing + (x[i] != y[i] ? 1 : 0));
        }
        total += differing;
        x += part;
        y += part;
        count -= part;
    }
    return total;
}

/// Seconds of processor time, not of the clock: what other tenants run meanwhile does not count.
double seconds_of(const std::function<void()>& work) {
    const auto now = [] {
        timespec time = {};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double start = now();
    work();
    return now() - start;
}

/// Calls work(first block, end block, thread) on each thread.
void in_parallel(unsigned threads, std::uint64_t blocks,
                 const std::function<void(std::uint64_t, std::uint64_t, unsigned)>& work) {
    std::vector<std::jthread> others;
    for (unsigned t = 1; t < threads; ++t) {
        others.emplace_back(work, blocks * t / threads, blocks * (t + 1) / threads, t);
    }
    work(0, blocks / threads, 0);
}

struct Pair {
    std::vector<std::uint16_t> old_state;
    std::vector<std::uint16_t> new_state;
    std::vector<std::uint16_t> target;  // apply writes here
    std::vector<Bytes> coded;           // one per block
    std::vector<Bytes> swift;           // the same in the swift codec
    std::vector<BlockChanges> lists;    // what changed, once it was found
    std::vector<BlockChanges> found;
    TensorSeed seed{1, 2};

    BlockRange range(std::uint64_t block) const {
        return {0, block * kBlock, std::min(kBlock, old_state.size() - block * kBlock), 2};
    }
    std::uint64_t blocks() const { return (old_state.size() + kBlock - 1) / kBlock; }
};

std::span<const std::byte> block_of(const std::vector<std::uint16_t>& state,
                                    const BlockRange& range) {
    return range.of(std::as_bytes(std::span(state)));
}

void compare(Pair& pair, unsigned threads) {
    in_parallel(threads, pair.blocks(), [&](std::uint64_t first, std::uint64_t end, unsigned) {
        const std::uint64_t from = first * kBlock;
        const std::uint64_t to = std::min<std::uint64_t>(end * kBlock, pair.old_state.size());
        volatile std::uint64_t found =
            count_differing(pair.old_state.data() + from, pair.new_state.data() + from, to - from);
        (void)found;
    });
}

void encode(Pair& pair, unsigned threads, bool digest_old) {
    in_parallel(threads, pair.blocks(), [&](std::uint64_t first, std::uint64_t end, unsigned) {
        BlockEncoder encoder;
        for (std::uint64_t block = first; block < end; ++block) {
            const BlockRange range = pair.range(block);
            StateDigest digest;
            pair.coded[block].clear();
            const EncodedDifference difference = encoder.encode_difference(
                block_of(pair.old_state, range), block_of(pair.new_state, range),
                traits_of(Dtype::kBf16), pair.seed,
                {digest_old ? &pair.seed : nullptr, range.first_word(), &digest},
                range.first_word(), pair.coded[block]);
            volatile std::uint64_t keep = difference.touched.after.a + digest.a;
            (void)keep;
        }
    });
}

void decode(Pair& pair, unsigned threads) {
    in_parallel(threads, pair.blocks(), [&](std::uint64_t first, std::uint64_t end, unsigned) {
        BlockDecoder decoder;
        BlockChanges changes;
        for (std::uint64_t block = first; block < end; ++block) {
            const BlockRange range = pair.range(block);
            const auto target = block_of(pair.target, range);
            auto decoded =
                decoder.decode(pair.coded[block], target, traits_of(Dtype::kBf16), changes);
            if (!decoded) std::abort();
            const TouchedSums touched =
                touched_sums(target, changes, pair.seed, range.first_word());
            volatile std::uint64_t keep = touched.after.a;
            (void)keep;
            scatter_new_bits(changes, const_cast<std::byte*>(target.data()));
        }
    });
}

/// From two arrays, as `wisp diff` does; what was found stays for encode_lists().
void encode_swift(Pair& pair, unsigned threads) {
    const TensorInfo tensor = {"w", Dtype::kBf16, {pair.old_state.size()}};
    in_parallel(threads, pair.blocks(), [&](std::uint64_t first, std::uint64_t end, unsigned) {
        WriteWorker worker;
        for (std::uint64_t block = first; block < end; ++block) {
            const BlockRange range = pair.range(block);
            WrittenBlock written = encode_block(
                Codec::kSwift, tensor, range, block_of(pair.old_state, range),
                block_of(pair.new_state, range), pair.seed, worker, pair.lists.empty());
            pair.swift[block] = std::move(written.encoded.coded);
            if (pair.lists.empty()) pair.found[block] = std::move(written.changes);
        }
    });
    if (pair.lists.empty()) pair.lists = std::move(pair.found);
}

/// The same without the digest of the whole old state.
void detect_swift(Pair& pair, unsigned threads) {
    in_parallel(threads, pair.blocks(), [&](std::uint64_t first, std::uint64_t end, unsigned) {
        WriteWorker worker;
        for (std::uint64_t block = first; block < end; ++block) {
            const BlockRange range = pair.range(block);
            worker.detector.detect(block_of(pair.old_state, range), block_of(pair.new_state, range),
                                   range, pair.seed, false, worker.found);
            pair.swift[block].clear();
            worker.swift.encode(block_of(pair.old_state, range), worker.found.changes,
                                traits_of(Dtype::kBf16), pair.swift[block]);
        }
    });
}

void encode_lists(Pair& pair, unsigned threads) {
    in_parallel(threads, pair.blocks(), [&](std::uint64_t first, std::uint64_t end, unsigned) {
        SwiftEncoder encoder;
        for (std::uint64_t block = first; block < end; ++block) {
            pair.swift[block].clear();
            encoder.encode(block_of(pair.old_state, pair.range(block)), pair.lists[block],
                           traits_of(Dtype::kBf16), pair.swift[block]);
        }
    });
}

/// Positions and values; with `apply` they are proven and written.
void decode_swift(Pair& pair, unsigned threads, bool apply) {
    const DtypeTraits& traits = traits_of(Dtype::kBf16);
    in_parallel(threads, pair.blocks(), [&](std::uint64_t first, std::uint64_t end, unsigned) {
        SwiftDecoder decoder;
        BlockChanges changes;
        for (std::uint64_t block = first; block < end; ++block) {
            const BlockRange range = pair.range(block);
            const auto target = block_of(pair.target, range);
            if (!decoder.decode(pair.swift[block], target, traits, changes)) std::abort();
            if (!apply) continue;
            const TouchedSums touched =
                touched_sums(target, changes, pair.seed, range.first_word());
            volatile std::uint64_t keep = touched.after.a;
            (void)keep;
            scatter_new_bits(changes, const_cast<std::byte*>(target.data()));
        }
    });
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    const std::size_t count = argc > 1 ? std::stoull(argv[1]) : 600'000'000;
    const int rounds = argc > 2 ? std::stoi(argv[2]) : 7;
    const std::string only = argc > 4 ? argv[4] : "";
    Pair pair;
    pair.old_state.resize(count);
    pair.new_state.resize(count);
    const unsigned cores = std::thread::hardware_concurrency();
    in_parallel(cores, pair.blocks(), [&](std::uint64_t first, std::uint64_t end, unsigned) {
        for (std::uint64_t block = first; block < end; ++block) {
            const BlockRange range = pair.range(block);
            const auto part = [&](std::vector<std::uint16_t>& state) {
                return std::span(state).subspan(range.first_element, range.element_count);
            };
            simulation::fill_pair({1, range.first_element}, 0.04F, {}, part(pair.old_state),
                                  part(pair.new_state));
        }
    });
    pair.target = pair.old_state;
    pair.coded.resize(pair.blocks());
    encode(pair, cores, true);
    std::uint64_t coded_bytes = 0;
    for (const Bytes& block : pair.coded) coded_bytes += block.size();
    const std::uint64_t changed =
        count_differing(pair.old_state.data(), pair.new_state.data(), count);
    decode(pair, cores);
    const auto is_new = [&] {
        if (pair.target == pair.new_state) return true;
        fmt::print(stderr, "decoding did not give the new state\n");
        return false;
    };
    if (!is_new()) return 1;
    pair.swift.resize(pair.blocks());
    pair.found.resize(pair.blocks());
    encode_swift(pair, cores);
    std::uint64_t swift_bytes = 0;
    for (const Bytes& block : pair.swift) swift_bytes += block.size();
    pair.target = pair.old_state;
    decode_swift(pair, cores, true);
    if (!is_new()) return 1;
    fmt::print(
        "kernel {}, {:.2f} GB pair, {:.3f} % changed, {:.2f} bits per change (swift {:.2f}), "
        "{} rounds\n",
        kernel_name(), 2e-9 * static_cast<double>(2 * count),
        100.0 * static_cast<double>(changed) / static_cast<double>(count),
        8.0 * static_cast<double>(coded_bytes) / static_cast<double>(changed),
        8.0 * static_cast<double>(swift_bytes) / static_cast<double>(changed), rounds);
    fmt::print("{:<34} {:>8} {:>12} {:>14} {:>14}\n", "", "threads", "GB/s read", "of compare",
               "ns per change");

    nlohmann::ordered_json rows;
    const double gigabytes = 4e-9 * static_cast<double>(count);
    for (const unsigned threads : {1U, 2U}) {
        const std::vector<std::pair<std::string, std::function<void()>>> works = {
            {"compare", [&] { compare(pair, threads); }},
            {"detect + encode", [&] { encode(pair, threads, false); }},
            {"detect + digest + encode", [&] { encode(pair, threads, true); }},
            {"decode + prove + apply", [&] { decode(pair, threads); }},
            {"swift: detect + encode", [&] { detect_swift(pair, threads); }},
            {"swift: detect + digest + encode", [&] { encode_swift(pair, threads); }},
            {"swift: encode from a list", [&] { encode_lists(pair, threads); }},
            {"swift: decode", [&] { decode_swift(pair, threads, false); }},
            {"swift: decode + prove + apply", [&] { decode_swift(pair, threads, true); }},
        };
        std::vector<std::vector<double>> times(works.size());
        for (int round = 0; round < rounds; ++round) {
            for (std::size_t i = 0; i < works.size(); ++i) {
                if (!only.empty() && works[i].first != only) continue;
                // Applying needs the old state again; restoring it is not timed.
                if (i == 3 || i >= 7)
                    std::memcpy(pair.target.data(), pair.old_state.data(), count * 2);
                times[i].push_back(seconds_of(works[i].second) / threads);
            }
        }
        if (!only.empty()) continue;
        const double baseline = median(times[0]);
        for (std::size_t i = 0; i < works.size(); ++i) {
            const double time = median(times[i]);
            const double per_change = 1e9 * time * threads / static_cast<double>(changed);
            fmt::print("{:<34} {:>8} {:>12.1f} {:>14.2f} {:>14.1f}\n", works[i].first, threads,
                       gigabytes / time, baseline / time, per_change);
            rows.push_back({{"work", works[i].first},
                            {"threads", threads},
                            {"gigabytes_per_second", gigabytes / time},
                            {"of_compare", baseline / time},
                            {"nanoseconds_per_change", per_change}});
        }
    }
    if (argc > 3 && *argv[3] != '-') {
        std::ofstream(argv[3]) << nlohmann::ordered_json{{"kernel", kernel_name()},
                                                         {"elements", count},
                                                         {"changed", changed},
                                                         {"rows", rows}}
                                      .dump(2)
                               << "\n";
    }
    return 0;
}
