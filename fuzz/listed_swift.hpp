// A swift block of changes that the input lists, written by the grammar alone: with any shape of
// gaps and any exponent of single steps that the format lets a writer choose.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "codec/block_layout.hpp"
#include "codec/gap_table.hpp"
#include "codec/rans.hpp"
#include "codec/step_length.hpp"
#include "codec/swift_steps.hpp"
#include "fuzz_input.hpp"
#include "kernel/elements.hpp"
#include "kernel/kernels.hpp"
#include "kernel/value_order.hpp"
#include "wisp/state.hpp"

namespace wisp::fuzz {

/// What the format leaves to its writer.
struct SwiftChoice {
    unsigned above;  // how far single_from lies above the smallest that will do
    GapShape shape;

    static SwiftChoice from(FuzzInput& in) {
        const auto above = static_cast<unsigned>(in.choice(kMaxSingleFrom + 1));
        const auto low_bits = static_cast<unsigned>(in.choice(kMaxLowBits + 1));
        return {above, {low_bits, static_cast<unsigned>(1 + in.choice(255))}};
    }
};

struct ListedSwift {
    BlockChanges changes;
    std::vector<std::uint32_t> gaps;
    std::vector<std::uint64_t> lengths;
    std::vector<std::uint32_t> signs;  // 1: down
};

/// As many changes as the rest of the input has and the block has room for.
template <class T>
ListedSwift list_swift(FuzzInput& in, std::span<const std::byte> old_block, bool sign_magnitude) {
    const ValueOrder<T> order(sign_magnitude);
    ListedSwift list;
    list.changes.element_bytes = sizeof(T);
    std::uint32_t position = 0;
    for (; !in.empty(); ++position) {
        const std::uint32_t gap = in.number<std::uint8_t>();
        position += gap;
        if (position >= old_block.size() / sizeof(T)) break;
        // Its highest bit is the sign, its lowest whether the step may be longer than one: as long
        // as its element is wide, and so the long way round.
        const auto form = in.number<std::uint8_t>();
        const std::uint64_t more =
            form % 2 == 0 ? 0 : in.number<std::uint64_t>() >> (form / 2 % 64);
        const T length = static_cast<T>(1 + more % std::numeric_limits<T>::max());
        const T before = load_element<T>(old_block.data(), position);
        const T step = form >= 128 ? static_cast<T>(T{0} - length) : length;
        list.gaps.push_back(gap);
        list.lengths.push_back(length);
        list.signs.push_back(form >= 128 ? 1 : 0);
        list.changes.positions.push_back(position);
        append_fixed(list.changes.old_bits, before);
        append_fixed(list.changes.new_bits, order(static_cast<T>(order(before) + step)));
    }
    return list;
}

inline std::vector<std::uint8_t> exponents_of(const BlockChanges& changes,
                                              const DtypeTraits& traits) {
    std::vector<std::uint8_t> exponents(changes.count());
    active_kernels().take_exponents(changes.old_bits.data(), changes.count(), traits.element_bytes,
                                    exponent_field(traits), exponents.data());
    return exponents;
}

inline void append_packed(std::span<const std::uint32_t> numbers, unsigned width, Bytes& out) {
    const std::size_t start = out.size();
    out.resize(start + (numbers.size() * width + 7) / 8);
    for (std::size_t i = 0; i < numbers.size() * width; ++i) {
        const std::uint32_t bit = numbers[i / width] >> (i % width) & 1;
        out[start + i / 8] |= static_cast<std::byte>(bit << (i % 8));
    }
}

inline void put_gap(RansWriter& rans, const QuotientTable& table, std::uint32_t quotient,
                    Lane lane) {
    const auto put = [&](std::uint32_t symbol) {
        rans.put_value(table.start[symbol], table.frequency[symbol], kQuotientBits, lane);
    };
    for (; quotient >= table.escape; quotient -= table.escape) put(table.escape);
    put(quotient);
}

/// Appends the block of a list that is not empty.
inline void append_listed(const ListedSwift& list, const SwiftChoice& choice,
                          const DtypeTraits& traits, Bytes& out) {
    const std::vector<std::uint8_t> exponents = exponents_of(list.changes, traits);
    unsigned single_from = 0;
    for (std::size_t i = 0; i < exponents.size(); ++i) {
        if (list.lengths[i] > 1) single_from = std::max(single_from, exponents[i] + 1U);
    }
    single_from = std::min(single_from + choice.above, kMaxSingleFrom);
    const auto& [low_bits, zero_chance] = choice.shape;
    out.push_back(static_cast<std::byte>(BlockKind::kSwift));
    append_varint(out, list.gaps.size());
    out.push_back(static_cast<std::byte>(low_bits));
    out.push_back(static_cast<std::byte>(zero_chance));
    append_varint(out, single_from);
    append_packed(list.gaps, low_bits, out);
    append_packed(list.signs, 1, out);
    RansWriter rans;
    const QuotientTable table(zero_chance);
    for (std::size_t i = 0; i < list.gaps.size(); ++i) {
        put_gap(rans, table, list.gaps[i] >> low_bits, i % 2 == 0 ? Lane::kPosition : Lane::kValue);
    }
    BinadeStepModel model;
    bool odd = false;
    for (std::size_t i = 0; i < exponents.size(); ++i) {
        if (exponents[i] >= single_from) continue;
        const StepContext context = model.context(exponents[i]);
        if (odd) {
            put_length<Lane::kValue>(rans, context, list.lengths[i]);
        } else {
            put_length<Lane::kPosition>(rans, context, list.lengths[i]);
        }
        odd = !odd;
    }
    rans.finish(out);
}

}  // namespace wisp::fuzz
