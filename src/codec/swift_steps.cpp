#include "codec/swift_steps.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "codec/by_turns.hpp"
#include "codec/step_length.hpp"
#include "kernel/elements.hpp"
#include "kernel/kernels.hpp"
#include "kernel/value_order.hpp"

namespace wisp {
namespace {

/// In zigzag, by eight signs: 1 down, 2 up.
constexpr auto kSingleSteps = [] {
    std::array<std::array<std::uint8_t, 8>, 256> steps{};
    for (unsigned signs = 0; signs < 256; ++signs) {
        for (unsigned i = 0; i < 8; ++i) {
            steps[signs][i] = static_cast<std::uint8_t>(2 - (signs >> i & 1));
        }
    }
    return steps;
}();

/// The lowest bits of eight bytes.
std::byte lowest_bits(const std::uint8_t* eight) {
    std::uint64_t bytes;
    std::memcpy(&bytes, eight, 8);
    return static_cast<std::byte>((bytes & 0x0101010101010101) * 0x0102040810204080 >> 56);
}

std::unexpected<Error> corrupt_steps(const char* what) {
    return fail(ErrorKind::kCorrupt, std::string("swift block: ") + what);
}

}  // namespace

void SwiftSteps::reserve(std::size_t count, unsigned element_bytes) {
    count_ = count;
    element_bytes_ = element_bytes;
    const std::size_t in_eights = (count + 7) / 8 * 8;
    if (capped_.size() >= in_eights && steps_.size() >= in_eights * element_bytes / 8) return;
    steps_.resize(in_eights * element_bytes / 8);
    capped_.resize(in_eights);
    exponents_.resize(in_eights);
    coded_.resize(in_eights);
}

void SwiftSteps::list_coded(unsigned single_from) {
    coded_count_ = 0;
    for (std::size_t i = 0; i < count_; ++i) {
        // Without a jump, which could not be foretold.
        coded_[coded_count_] = static_cast<std::uint32_t>(i);
        coded_count_ += exponents_[i] < single_from ? 1 : 0;
    }
}

unsigned SwiftSteps::find(const BlockChanges& changes, const DtypeTraits& traits) {
    reserve(changes.count(), traits.element_bytes);
    active_kernels().take_exponents(changes.old_bits.data(), count_, element_bytes_,
                                    exponent_field(traits), exponents_.data());
    active_kernels().take_steps(changes.old_bits.data(), changes.new_bits.data(), count_,
                                element_bytes_, traits.sign_magnitude, bytes_of_steps(),
                                capped_.data());
    std::uint8_t highest = 0;
    std::uint8_t any = 0;
    for (std::size_t i = 0; i < count_; ++i) {
        const auto is_long = static_cast<std::uint8_t>(capped_[i] > 2 ? 0xFF : 0);
        any |= is_long;
        highest = std::max(highest, static_cast<std::uint8_t>(exponents_[i] & is_long));
    }
    const unsigned single_from = any == 0 ? 0 : highest + 1U;
    list_coded(single_from);
    // Of longer ones the sign went with what was cut off.
    with_element_type(element_bytes_, [&]<class T>(T) {
        for (const std::uint32_t i : coded()) {
            if (capped_[i] == 0xFF)
                capped_[i] = static_cast<std::uint8_t>(load_element<T>(bytes_of_steps(), i));
        }
        return 0;
    });
    return single_from;
}

void SwiftSteps::append_signs(Bytes& out) const {
    const std::size_t at = out.size();
    out.resize(at + (count_ + 7) / 8);
    for (std::size_t i = 0; i < count_ / 8; ++i) out[at + i] = lowest_bits(&capped_[i * 8]);
    if (count_ % 8 != 0) {
        std::array<std::uint8_t, 8> last{};
        std::copy_n(&capped_[count_ / 8 * 8], count_ % 8, last.begin());
        out.back() = lowest_bits(last.data());
    }
}

void SwiftSteps::put_lengths(RansWriter& rans) {
    BinadeStepModel model;
    const std::span<const std::uint32_t> listed = coded();
    with_element_type(element_bytes_, [&]<class T>(T) {
        by_turns(listed.size(), [&]<Lane kLane>(std::size_t k) {
            const std::uint32_t i = listed[k];
            const std::uint64_t step = load_element<T>(bytes_of_steps(), i);
            put_length<kLane>(rans, model.context(exponents_[i]), (step >> 1) + (step & 1));
        });
        return 0;
    });
}

Result<void> SwiftSteps::follow(RansReader rans, unsigned single_from, const std::byte* signs,
                                std::span<const std::byte> old_bits, const DtypeTraits& traits,
                                std::byte* new_bits) {
    reserve(old_bits.size() / traits.element_bytes, traits.element_bytes);
    active_kernels().take_exponents(old_bits.data(), count_, element_bytes_, exponent_field(traits),
                                    exponents_.data());
    list_coded(single_from);
    bool overlong = false;
    BinadeStepModel model;
    const std::span<const std::uint32_t> listed = coded();
    with_element_type(element_bytes_, [&]<class T>(T) {
        for (std::size_t i = 0; i < count_; i += 8) {
            const auto& eight = kSingleSteps[static_cast<std::uint8_t>(signs[i / 8])];
            std::array<T, 8> steps;
            std::ranges::copy(eight, steps.begin());
            std::memcpy(bytes_of_steps() + i * sizeof(T), steps.data(), sizeof(steps));
        }
        by_turns(listed.size(), [&]<Lane kLane>(std::size_t k) {
            const std::uint32_t i = listed[k];
            std::byte* const step = bytes_of_steps() + i * sizeof(T);
            const std::uint64_t length =
                take_length<kLane>(rans, model.context(exponents_[i]), sizeof(T) * 8, overlong);
            const T down = static_cast<T>(T{0} - (load_le<T>(step) & 1));
            store_le<T>(step, zigzag(static_cast<T>((static_cast<T>(length) ^ down) - down)));
        });
        return 0;
    });
    if (overlong) return corrupt_steps("a step is longer than its element");
    if (!rans.finished()) return corrupt_steps("its stream does not end with its last change");
    active_kernels().follow_steps(old_bits.data(), bytes_of_steps(), count_, element_bytes_,
                                  traits.sign_magnitude, new_bits);
    return {};
}

}  // namespace wisp
