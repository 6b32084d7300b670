// Swift blocks over a base: raw; with a sound header, so that the stream behind it is reached; or
// of a list, so that the stream ends as well, with one byte changed or none.
#include "codec/block_layout.hpp"
#include "codec/gap_table.hpp"
#include "codec/rans.hpp"
#include "codec/swift_decoder.hpp"
#include "kernel/scatter.hpp"
#include "listed_swift.hpp"
#include "outcome.hpp"
#include "sound_changes.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

/// Low bits and signs as they come, and any numbers as states inside the range that a reader takes.
void append_head(FuzzInput& in, std::size_t elements, Bytes& coded) {
    const std::size_t count = 1 + in.choice(elements);
    const auto low_bits = static_cast<unsigned>(in.choice(kMaxLowBits + 1));
    append_varint(coded, count);
    coded.push_back(static_cast<std::byte>(low_bits));
    coded.push_back(static_cast<std::byte>(1 + in.choice(255)));
    append_varint(coded, in.choice(kMaxSingleFrom + 1));
    for (const std::size_t bits : {count * low_bits, count}) {
        Bytes packed = block_from(in, (bits + 7) / 8);
        const unsigned used = static_cast<unsigned>(bits % 8);
        if (used != 0) packed.back() &= static_cast<std::byte>((1U << used) - 1);
        coded.insert(coded.end(), packed.begin(), packed.end());
    }
    for (int lane = 0; lane < 2; ++lane) {
        const std::uint64_t state = in.number<std::uint64_t>() % (kRansLow << 32);
        append_fixed(coded, state < kRansLow ? state + kRansLow : state);
    }
}

/// Both phases say what the decoder says at once; the first does not look at the base.
void check_phases(SwiftDecoder& decoder, std::span<const std::byte> coded,
                  std::span<const std::byte> old_block, const DtypeTraits& traits,
                  const BlockChanges& changes) {
    std::vector<std::uint32_t> positions;
    const auto reading =
        read_swift_positions(coded, old_block.size() / traits.element_bytes, traits, positions);
    FUZZ_CHECK(reading.has_value());
    FUZZ_CHECK(positions == changes.positions);
    Bytes old_bits(changes.old_bits.size());
    Bytes new_bits(changes.new_bits.size());
    gather(old_block.data(), positions, traits.element_bytes, old_bits.data());
    FUZZ_CHECK(decoder.values(*reading, old_bits, new_bits).has_value());
    FUZZ_CHECK(new_bits == changes.new_bits);
}

void check_decoding(std::span<const std::byte> coded, std::span<const std::byte> old_block,
                    const DtypeTraits& traits, const BlockChanges* expected) {
    SwiftDecoder decoder;
    BlockChanges changes;
    const bool decoded = decoder.decode(coded, old_block, traits, changes).has_value();
    FUZZ_CHECK(expected == nullptr || (decoded && changes == *expected));
    tell(decoded);
    if (!decoded) return;
    check_sound(changes, old_block, traits.element_bytes);
    check_phases(decoder, coded, old_block, traits, changes);
}

void run_listed(FuzzInput& in, std::span<const std::byte> old_block, const DtypeTraits& traits) {
    const SwiftChoice choice = SwiftChoice::from(in);
    const std::size_t flipped_at = in.number<std::uint16_t>();
    const auto flipped = static_cast<std::byte>(in.number<std::uint8_t>());
    const ListedSwift list = with_element_type(traits.element_bytes, [&]<class T>(T) {
        return list_swift<T>(in, old_block, traits.sign_magnitude);
    });
    if (list.changes.empty()) return;
    Bytes coded;
    append_listed(list, choice, traits, coded);
    coded[flipped_at % coded.size()] ^= flipped;
    check_decoding(coded, old_block, traits, flipped == std::byte{0} ? &list.changes : nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzInput in(data, size);
    const auto form = in.number<std::uint8_t>() % 4;
    const DtypeTraits& traits = traits_of(in.dtype());
    const std::size_t elements = 1 + in.choice(9000);
    const Bytes old_block = block_from(in, elements * traits.element_bytes);
    if (form > 1) {
        run_listed(in, old_block, traits);
        return 0;
    }
    Bytes coded = {static_cast<std::byte>(BlockKind::kSwift)};
    if (form == 1) append_head(in, elements, coded);
    auto rest = in.rest();
    if (form == 1) rest = rest.first(rest.size() / 4 * 4);
    coded.insert(coded.end(), rest.begin(), rest.end());
    check_decoding(coded, old_block, traits, nullptr);
    return 0;
}
