// Sparse blocks over a base: raw, or with a sound header so that the stream behind it is reached.
#include "codec/block_decoder.hpp"
#include "codec/block_layout.hpp"
#include "codec/hazard.hpp"
#include "codec/rans.hpp"
#include "codec/sparse_header.hpp"
#include "sound_changes.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

SparseHeader header_from(FuzzInput& in, const DtypeTraits& traits, std::size_t elements) {
    SparseHeader header;
    const std::size_t largest = exponent_field(traits).largest();
    header.change_count = 1 + in.choice(elements);
    header.window.top =
        static_cast<std::uint8_t>(in.choice(std::min<std::size_t>(kMaxClasses, largest + 1)));
    header.window.low = static_cast<std::uint8_t>(in.choice(largest - header.window.top + 1));
    header.hazard_shift =
        kMinHazardShift + static_cast<unsigned>(in.choice(kMaxHazardShift - kMinHazardShift + 1));
    for (std::size_t i = 0; i <= header.window.top; ++i) {
        header.weight_codes[i] = static_cast<std::uint8_t>(in.choice(kMaxWeightCode + 1));
    }
    return header;
}

/// Any number as a state inside the range that a reader takes.
std::uint64_t state_from(FuzzInput& in) {
    const std::uint64_t state = in.number<std::uint64_t>() % (kRansLow << 32);
    return state < kRansLow ? state + kRansLow : state;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzInput in(data, size);
    const bool raw = in.number<std::uint8_t>() % 4 == 0;
    const DtypeTraits& traits = traits_of(in.dtype());
    const std::size_t elements = 1 + in.choice(9000);
    const Bytes old_block = block_from(in, elements * traits.element_bytes);
    Bytes coded = {static_cast<std::byte>(BlockKind::kSparse)};
    if (!raw) {
        write_sparse_header(header_from(in, traits, elements), coded);
        append_fixed(coded, state_from(in));
        append_fixed(coded, state_from(in));
    }
    const auto rest = in.rest();
    coded.insert(
        coded.end(), rest.begin(),
        rest.begin() + static_cast<std::ptrdiff_t>(raw ? rest.size() : rest.size() / 4 * 4));
    BlockDecoder decoder;
    BlockChanges changes;
    if (decoder.decode(coded, old_block, traits, changes)) {
        check_sound(changes, old_block, traits.element_bytes);
    }
    return 0;
}
