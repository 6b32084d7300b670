#include "codec/dense_encoder.hpp"

#include <algorithm>
#include <bit>

#include "codec/bit_writer.hpp"
#include "codec/dense_decoder.hpp"
#include "codec/sign_rotation.hpp"
#include "codec/step_model.hpp"
#include "codec/step_token.hpp"
#include "kernel/scatter.hpp"

namespace wisp {
namespace {

// Enough for frequencies to a few per cent; more would cost as much as coding.
constexpr std::size_t kSampledElements = 1U << 16;
constexpr std::size_t kSampleRun = 256;
// What is worked on stays in the nearest cache.
constexpr std::size_t kDenseChunk = 4096;

/// Every n-th run of the block.
void take_sample(std::span<const std::byte> block, unsigned width, Bytes& sample) {
    const std::size_t run = kSampleRun * width;
    const std::size_t stride =
        std::max<std::size_t>(1, block.size() / width / kSampledElements) * run;
    sample.clear();
    for (std::size_t at = 0; at < block.size(); at += stride) {
        const auto part = block.subspan(at, std::min(run, block.size() - at));
        sample.insert(sample.end(), part.begin(), part.end());
    }
}

/// The eight binades that hold most.
ClassWindow densest_window(std::span<const std::uint8_t> exponents, std::uint32_t largest) {
    std::array<std::uint32_t, 256> counts{};
    for (const std::uint8_t exponent : exponents) ++counts[exponent];
    ClassWindow window;
    window.top = static_cast<std::uint8_t>(std::min<std::uint32_t>(kMaxTokenClasses - 1, largest));
    std::uint32_t most = 0;
    for (std::uint32_t low = 0; low + window.top <= largest; ++low) {
        std::uint32_t held = 0;
        for (std::uint32_t i = 0; i <= window.top; ++i) held += counts[low + i];
        if (held <= most) continue;
        most = held;
        window.low = static_cast<std::uint8_t>(low);
    }
    return window;
}

void take_classes(std::span<const std::byte> block, const DtypeTraits& traits,
                  const ClassWindow& window, std::uint8_t* classes) {
    const std::size_t count = block.size() / traits.element_bytes;
    active_kernels().take_exponents(block.data(), count, traits.element_bytes,
                                    exponent_field(traits), classes);
    classify(window, {classes, count});
}

/// Turns capped steps into tokens, and calls behind(index, bits behind it, how many) for each that
/// is long.
template <class Behind>
void make_tokens(const std::byte* steps, unsigned width, std::span<std::uint8_t> capped,
                 Behind&& behind) {
    with_element_type(width, [&]<class T>(T) {
        const auto lengthen = [&](std::size_t i) {
            const auto step = static_cast<std::uint32_t>(load_element<T>(steps, i));
            const std::uint32_t token = token_of_step(step);
            capped[i] = static_cast<std::uint8_t>(token);
            const unsigned bits = bits_behind(token);
            behind(i, step & ((1U << bits) - 1), bits);
        };
        std::size_t i = 0;
        for (; i + 8 <= capped.size(); i += 8) {
            std::uint64_t eight;
            std::memcpy(&eight, &capped[i], 8);
            for_each_long(eight, [&](std::size_t index) { lengthen(i + index); });
        }
        for (; i < capped.size(); ++i) {
            if (capped[i] >= kPlainTokens) lengthen(i);
        }
        return 0;
    });
}

template <class T>
std::uint8_t high_byte(const std::byte* block, std::size_t index) {
    return static_cast<std::uint8_t>(rotate_sign_down(load_element<T>(block, index)) >>
                                     (sizeof(T) * 8 - 8));
}

template <class T>
void keep_low_bytes(std::span<const std::byte> block, std::byte* to) {
    constexpr std::size_t kKept = sizeof(T) - 1;
    for (std::size_t i = 0; i < block.size() / sizeof(T); ++i) {
        const T rotated = rotate_sign_down(load_element<T>(block.data(), i));
        std::memcpy(to + i * kKept, &rotated, kKept);
    }
}

/// How many bytes a table of so many tokens takes, about.
double table_bytes(const std::array<std::uint32_t, 256>& counts) {
    return 5 + 1.5 * static_cast<double>(std::ranges::count_if(
                         counts, [](std::uint32_t count) { return count != 0; }));
}

}  // namespace

std::span<const std::byte> DenseEncoder::new_block(std::span<const std::byte> old_block,
                                                   const BlockChanges& changes) {
    if (changes.new_bits.size() == old_block.size()) return changes.new_bits;
    new_block_.assign(old_block.begin(), old_block.end());
    scatter_new_bits(changes, new_block_.data());
    return new_block_;
}

EncodedDifference DenseEncoder::encode_difference(std::span<const std::byte> old_block,
                                                  std::span<const std::byte> new_block,
                                                  const DtypeTraits& traits, const TensorSeed& seed,
                                                  const ScanDigest& digest,
                                                  std::uint64_t first_word, Bytes& out,
                                                  BlockChanges* keep) {
    const Comparison comparison = active_kernels().compare(old_block.data(), new_block.data(),
                                                           old_block.size() / traits.element_bytes,
                                                           traits.element_bytes, seed, first_word);
    if (digest.seed != nullptr) *digest.digest += comparison.old_state;
    if (keep != nullptr) {
        keep->element_bytes = traits.element_bytes;
        compare_blocks(old_block, new_block, *keep);
    }
    if (comparison.changed > 0) {
        plan(old_block, new_block, traits);
        encode(old_block, new_block, traits, out);
    }
    return {comparison.changed, comparison.touched};
}

double changed_share(std::span<const std::byte> old_block, std::span<const std::byte> new_block,
                     unsigned element_bytes) {
    constexpr std::size_t kLooks = 16;
    std::array<std::uint32_t, kSampleRun> positions;
    const std::size_t count = old_block.size() / element_bytes;
    const std::size_t stride = std::max(count / kLooks, kSampleRun);
    std::size_t looked = 0;
    std::size_t changed = 0;
    for (std::size_t first = 0; first < count; first += stride) {
        const std::size_t size = std::min(kSampleRun, count - first);
        const std::size_t at = first * element_bytes;
        changed += active_kernels().scan(old_block.data() + at, new_block.data() + at, size,
                                         element_bytes, positions.data(), {});
        looked += size;
    }
    return looked == 0 ? 0 : static_cast<double>(changed) / static_cast<double>(looked);
}

void DenseEncoder::count_steps(std::span<const std::byte> old_part,
                               std::span<const std::byte> new_part, const DtypeTraits& traits) {
    const std::size_t count = old_part.size() / traits.element_bytes;
    make_room(count);
    const std::span<std::uint8_t> classes(classes_.data(), count);
    const std::span<std::uint8_t> tokens(tokens_.data(), count);
    steps_.resize(old_part.size());
    const ExponentField field = exponent_field(traits);
    active_kernels().take_exponents(old_part.data(), count, traits.element_bytes, field,
                                    classes_.data());
    window_ = densest_window(classes, field.largest());
    classify(window_, classes);
    active_kernels().take_steps(old_part.data(), new_part.data(), count, traits.element_bytes,
                                traits.sign_magnitude, steps_.data(), tokens_.data());
    std::uint64_t behind = 0;
    make_tokens(steps_.data(), traits.element_bytes, tokens,
                [&](std::size_t, std::uint32_t, unsigned bits) { behind += bits; });
    bits_behind_ = static_cast<double>(behind);
    for (Counts& counts : step_counts_) counts.fill(0);
    for (std::size_t i = 0; i < count; ++i) ++step_counts_[classes_[i]][tokens_[i]];
}

void DenseEncoder::make_room(std::size_t count) {
    tokens_.resize(std::max(tokens_.size(), count));
    classes_.resize(tokens_.size());
}

double DenseEncoder::plan(std::span<const std::byte> old_block,
                          std::span<const std::byte> new_block, const DtypeTraits& traits) {
    const unsigned width = traits.element_bytes;
    take_sample(old_block, width, old_sample_);
    take_sample(new_block, width, new_sample_);
    const std::size_t sampled = new_sample_.size() / width;
    const double scale =
        static_cast<double>(new_block.size()) / static_cast<double>(new_sample_.size()) / 8;
    constexpr double kStates = 4 + kTokenStates * 4;
    byte_counts_.fill(0);
    with_element_type(width, [&]<class T>(T) {
        for (std::size_t i = 0; i < sampled; ++i)
            ++byte_counts_[high_byte<T>(new_sample_.data(), i)];
        return 0;
    });
    kind_ = BlockKind::kRaw;
    auto least = static_cast<double>(new_block.size());
    const auto consider = [&](BlockKind kind, double bytes) {
        // Raw is copied: what saves next to nothing is not worth the time of either side.
        if (bytes >= 0.97 * least) return;
        least = bytes;
        kind_ = kind;
    };
    consider(BlockKind::kSplit, kStates + table_bytes(byte_counts_) +
                                    entropy_bits(byte_counts_) * scale +
                                    static_cast<double>(new_block.size()) / width * (width - 1));
    if (width > kMaxStepBytes) return least;
    count_steps(old_sample_, new_sample_, traits);
    double bytes = kStates + bits_behind_ * scale;
    for (std::size_t i = 0; i <= window_.top; ++i) {
        bytes += table_bytes(step_counts_[i]) + entropy_bits(step_counts_[i]) * scale;
    }
    consider(BlockKind::kSteps, bytes);
    return least;
}

void DenseEncoder::encode(std::span<const std::byte> old_block,
                          std::span<const std::byte> new_block, const DtypeTraits& traits,
                          Bytes& out) {
    const std::size_t start = out.size();
    out.push_back(static_cast<std::byte>(kind_));
    if (kind_ == BlockKind::kSteps) append_steps(old_block, new_block, traits, out);
    if (kind_ == BlockKind::kSplit) append_split(new_block, traits.element_bytes, out);
    // A sample may mislead.
    if (kind_ != BlockKind::kRaw && out.size() - start <= new_block.size()) return;
    out.resize(start);
    out.push_back(static_cast<std::byte>(BlockKind::kRaw));
    out.insert(out.end(), new_block.begin(), new_block.end());
}

void DenseEncoder::append_steps(std::span<const std::byte> old_block,
                                std::span<const std::byte> new_block, const DtypeTraits& traits,
                                Bytes& out) {
    const unsigned width = traits.element_bytes;
    const std::size_t count = new_block.size() / width;
    make_room(count);
    steps_.resize(std::max(steps_.size(), kDenseChunk * width));
    // Asking it of the short ones too would take as long as coding them: they all may occur.
    std::array<std::array<bool, 256>, kMaxTokenClasses> occurs{};
    for (auto& tokens : occurs) std::fill_n(tokens.begin(), kPlainTokens, true);
    behind_.clear();
    BitWriter behind(behind_);
    for (std::size_t first = 0; first < count; first += kDenseChunk) {
        const std::size_t size = std::min(kDenseChunk, count - first);
        const auto old_part = old_block.subspan(first * width, size * width);
        std::uint8_t* const tokens = tokens_.data() + first;
        std::uint8_t* const classes = classes_.data() + first;
        take_classes(old_part, traits, window_, classes);
        active_kernels().take_steps(old_part.data(), new_block.data() + first * width, size, width,
                                    traits.sign_magnitude, steps_.data(), tokens);
        make_tokens(steps_.data(), width, {tokens, size},
                    [&](std::size_t i, std::uint32_t number, unsigned bits) {
                        behind.put(number, bits);
                        occurs[classes[i]][tokens[i]] = true;
                    });
    }
    behind.finish();
    out.push_back(static_cast<std::byte>(window_.top));
    out.push_back(static_cast<std::byte>(window_.low));
    std::array<TokenTable, kMaxTokenClasses> tables;
    for (std::size_t i = 0; i <= window_.top; ++i) {
        Counts& counts = step_counts_[i];
        for (std::size_t token = 0; token < 256; ++token) {
            counts[token] = occurs[i][token] ? std::max(counts[token], 1U) : 0;
        }
        tables[i] = TokenTable::from_counts(counts);
        write_token_table(tables[i], out);
    }
    writer_.append({tokens_.data(), count}, {classes_.data(), count},
                   std::span(tables).first(window_.top + 1U), out);
    out.insert(out.end(), behind_.begin(), behind_.end());
}

void DenseEncoder::append_split(std::span<const std::byte> new_block, unsigned element_bytes,
                                Bytes& out) {
    with_element_type(element_bytes, [&]<class T>(T) {
        const std::size_t count = new_block.size() / sizeof(T);
        make_room(count);
        const std::span<std::uint8_t> tokens(tokens_.data(), count);
        std::array<std::uint8_t, 256> occurs{};
        for (std::size_t i = 0; i < count; ++i) tokens[i] = high_byte<T>(new_block.data(), i);
        for (const std::uint8_t token : tokens) occurs[token] = 1;
        for (std::size_t i = 0; i < 256; ++i) {
            byte_counts_[i] = occurs[i] != 0 ? std::max(byte_counts_[i], 1U) : 0;
        }
        const TokenTable table = TokenTable::from_counts(byte_counts_);
        write_token_table(table, out);
        const std::span<std::uint8_t> classes(classes_.data(), count);
        std::ranges::fill(classes, 0);
        writer_.append(tokens, classes, {&table, 1}, out);
        const std::size_t at = out.size();
        out.resize(at + count * (sizeof(T) - 1));
        if constexpr (sizeof(T) > 1) keep_low_bytes<T>(new_block, out.data() + at);
        return 0;
    });
}

double expected_step_bits(const BlockChanges& changes, bool sign_magnitude) {
    constexpr std::size_t kSampledSteps = 4096;
    double bits = 0;
    std::size_t sampled = 0;
    with_element_type(changes.element_bytes, [&]<class T>(T) {
        const ValueOrder<T> order(sign_magnitude);
        const std::size_t stride = std::max<std::size_t>(1, changes.count() / kSampledSteps);
        for (std::size_t i = 0; i < changes.count(); i += stride, ++sampled) {
            const Step step = step_between(load_element<T>(changes.old_bits.data(), i),
                                           load_element<T>(changes.new_bits.data(), i), order);
            bits += static_cast<double>(std::bit_width(step.magnitude));  // sign for the 1
        }
        return 0;
    });
    return bits / static_cast<double>(sampled) * static_cast<double>(changes.count());
}

}  // namespace wisp
