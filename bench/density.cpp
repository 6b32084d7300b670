// What a block costs to code, whatever share of it changed: both codecs, against a copy of the same
// bytes, on one thread.
//
//   wisp_density [ELEMENTS] [ROUNDS] [JSON or -] [PERCENT]
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "codec/block_decoder.hpp"
#include "codec/dense_decoder.hpp"
#include "codec/swift_decoder.hpp"
#include "delta/delta_writer.hpp"
#include "kernel/scatter.hpp"
#include "kernel/value_order.hpp"
#include "simulated_training.hpp"

namespace {

using namespace wisp;

constexpr std::uint64_t kBlock = std::uint64_t{1} << kLog2BlockElements;
constexpr TensorSeed kSeed{1, 2};
const DtypeTraits& kBf16 = traits_of(Dtype::kBf16);

struct Pair {
    std::vector<std::uint16_t> old_state;
    std::vector<std::uint16_t> new_state;

    BlockRange range(std::uint64_t block) const {
        return {0, block * kBlock, std::min(kBlock, old_state.size() - block * kBlock), 2};
    }
    std::uint64_t blocks() const { return (old_state.size() + kBlock - 1) / kBlock; }
    std::span<const std::byte> old_block(const BlockRange& range) const {
        return range.of(std::as_bytes(std::span(old_state)));
    }
    std::span<const std::byte> new_block(const BlockRange& range) const {
        return range.of(std::as_bytes(std::span(new_state)));
    }
};

std::uint64_t scrambled(std::uint64_t index) {
    index = (index ^ (index >> 31)) * 0x9E3779B97F4A7C15;
    index = (index ^ (index >> 29)) * 0xBF58476D1CE4E5B9;
    return index ^ (index >> 32);
}

/// Moves that share of the elements, each by a step that is halved in number as it grows by one.
void change(Pair& pair, double share) {
    const ValueOrder<std::uint16_t> order(true);
    const auto limit = static_cast<std::uint64_t>(share * 4294967296.0);
    for (std::size_t i = 0; i < pair.old_state.size(); ++i) {
        pair.new_state[i] = pair.old_state[i];
        const std::uint64_t random = scrambled(i + 1);
        if ((random & 0xFFFFFFFF) >= limit) continue;
        const auto size = static_cast<std::uint16_t>(1 + std::countr_zero(random >> 33 | 64));
        const std::uint16_t before = order(pair.old_state[i]);
        const bool down = (random >> 32 & 1) != 0;
        pair.new_state[i] = order(static_cast<std::uint16_t>(down ? before - size : before + size));
    }
}

double seconds_of(const std::function<void()>& work) {
    const auto now = [] {
        timespec time = {};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double start = now();
    work();
    return now() - start;
}

/// From two arrays, as `wisp diff` does.
void encode(const Pair& pair, Codec codec, WriteWorker& worker, std::vector<Bytes>& coded) {
    const TensorInfo tensor = {"w", Dtype::kBf16, {pair.old_state.size()}};
    for (std::uint64_t block = 0; block < pair.blocks(); ++block) {
        const BlockRange range = pair.range(block);
        WrittenBlock written = encode_block(codec, tensor, range, pair.old_block(range),
                                            pair.new_block(range), kSeed, worker, false);
        coded[block] = std::move(written.encoded.coded);
    }
}

template <class Decoder>
void decode(const Pair& pair, Decoder& decoder, BlockChanges& changes,
            const std::vector<Bytes>& coded) {
    for (std::uint64_t block = 0; block < pair.blocks(); ++block) {
        if (!decoder.decode(coded[block], pair.old_block(pair.range(block)), kBf16, changes)) {
            std::abort();
        }
    }
}

/// Into the new weights, as a rank of an engine takes them: in the codec swift alone, and where a
/// block holds every element without a list of changes in between.
void take(const Pair& pair, SwiftDecoder& decoder, BlockChanges& changes,
          const std::vector<Bytes>& coded, std::vector<std::uint16_t>& target) {
    for (std::uint64_t block = 0; block < pair.blocks(); ++block) {
        const BlockRange range = pair.range(block);
        const auto old_block = pair.old_block(range);
        const auto new_block = std::as_writable_bytes(std::span(target))
                                   .subspan(range.first_element * 2, old_block.size());
        changes.element_bytes = 2;
        const auto reading =
            read_swift_positions(coded[block], range.element_count, kBf16, changes.positions);
        if (!reading) std::abort();
        if (!SwiftDecoder::is_sparse(coded[block])) {
            if (!decoder.values(*reading, old_block, new_block)) std::abort();
            continue;
        }
        changes.old_bits.resize(changes.count() * 2);
        changes.new_bits.resize(changes.count() * 2);
        gather(old_block.data(), changes.positions, 2, changes.old_bits.data());
        if (!decoder.values(*reading, changes.old_bits, changes.new_bits)) std::abort();
        scatter_new_bits(changes, new_block.data());
    }
}

double least(const std::vector<double>& values) {
    return *std::ranges::min_element(values);
}

}  // namespace

int main(int argc, char** argv) {
    Pair pair;
    pair.old_state.resize(argc > 1 ? std::stoull(argv[1]) : 60'000'000);
    pair.new_state.resize(pair.old_state.size());
    const int rounds = argc > 2 ? std::stoi(argv[2]) : 5;
    simulation::fill_pair({1, 0}, 0.04F, {}, pair.old_state, pair.new_state);
    std::vector<std::uint16_t> copied(pair.old_state.size());
    const double bytes = 2.0 * static_cast<double>(pair.old_state.size());
    fmt::print("kernel {}, {:.2f} GB of new weights, one thread, best of {}\n", kernel_name(),
               1e-9 * bytes, rounds);
    fmt::print("{:>9} {:>8} {:>10} {:>12} {:>12} {:>10} {:>12} {:>12} {:>10}\n", "changed", "codec",
               "copy GB/s", "encode GB/s", "decode GB/s", "take GB/s", "encode/copy", "decode/copy",
               "of full");
    nlohmann::ordered_json rows;
    WriteWorker worker;
    BlockDecoder compact;
    SwiftDecoder swift;
    BlockChanges changes;
    std::vector<Bytes> coded(pair.blocks());
    for (const double percent : {0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0}) {
        if (argc > 4 && std::stod(argv[4]) != percent) continue;
        change(pair, percent / 100);
        for (const Codec codec : {Codec::kCompact, Codec::kSwift}) {
            std::vector<double> copies, encodes, decodes, takes;
            for (int round = 0; round < rounds; ++round) {
                copies.push_back(seconds_of(
                    [&] { std::memcpy(copied.data(), pair.new_state.data(), copied.size() * 2); }));
                encodes.push_back(seconds_of([&] { encode(pair, codec, worker, coded); }));
                decodes.push_back(seconds_of([&] {
                    if (codec == Codec::kCompact) return decode(pair, compact, changes, coded);
                    decode(pair, swift, changes, coded);
                }));
                if (codec == Codec::kCompact) continue;
                std::ranges::copy(pair.old_state, copied.begin());
                takes.push_back(seconds_of([&] { take(pair, swift, changes, coded, copied); }));
                if (copied != pair.new_state) std::abort();
            }
            double coded_bytes = 0;
            for (const Bytes& block : coded) coded_bytes += static_cast<double>(block.size());
            const double take_seconds = takes.empty() ? 0 : least(takes);
            fmt::print(
                "{:>8}% {:>8} {:>10.1f} {:>12.2f} {:>12.2f} {:>10.2f} {:>12.1f} {:>12.1f} "
                "{:>10.4f}\n",
                percent, name_of(codec), 1e-9 * bytes / least(copies),
                1e-9 * bytes / least(encodes), 1e-9 * bytes / least(decodes),
                takes.empty() ? 0 : 1e-9 * bytes / take_seconds, least(encodes) / least(copies),
                least(decodes) / least(copies), coded_bytes / bytes);
            rows.push_back({{"changed_percent", percent},
                            {"codec", name_of(codec)},
                            {"copy_seconds", least(copies)},
                            {"encode_seconds", least(encodes)},
                            {"decode_seconds", least(decodes)},
                            {"take_seconds", take_seconds},
                            {"coded_bytes", coded_bytes}});
        }
    }
    if (argc > 3 && *argv[3] != '-') {
        std::ofstream(argv[3]) << nlohmann::ordered_json{{"kernel", kernel_name()},
                                                         {"elements", pair.old_state.size()},
                                                         {"rows", rows}}
                                      .dump(2)
                               << "\n";
    }
    return 0;
}
