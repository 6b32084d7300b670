// Split, raw and unknown blocks over a base: raw bytes, or a sound table before a fuzzed stream.
#include "codec/block_decoder.hpp"
#include "codec/block_layout.hpp"
#include "codec/rans.hpp"
#include "codec/split_table.hpp"
#include "sound_changes.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

void append_table(FuzzInput& in, Bytes& coded) {
    std::array<std::uint64_t, 256> counts{};
    const std::size_t present = 1 + in.choice(16);
    for (std::size_t i = 0; i < present; ++i) {
        counts[in.number<std::uint8_t>()] = 1 + in.number<std::uint16_t>();
    }
    write_split_table(SplitTable::from_counts(counts), coded);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzInput in(data, size);
    const bool raw = in.number<std::uint8_t>() % 4 == 0;
    const DtypeTraits& traits = traits_of(in.dtype());
    const std::size_t elements = in.choice(600);
    const Bytes old_block = block_from(in, elements * traits.element_bytes);
    Bytes coded;
    if (!raw) {
        coded.push_back(static_cast<std::byte>(BlockKind::kSplit));
        append_table(in, coded);
        Bytes stream;
        for (unsigned i = 0; i < kSplitStates; ++i) {
            const std::uint64_t state = in.number<std::uint64_t>() % (kRansLow << 32);
            append_fixed(stream, state < kRansLow ? state + kRansLow : state);
        }
        const std::size_t words = in.choice(200);
        for (std::size_t i = 0; i < words; ++i) append_fixed(stream, in.number<std::uint32_t>());
        append_varint(coded, stream.size());
        coded.insert(coded.end(), stream.begin(), stream.end());
        const Bytes low = block_from(in, elements * (traits.element_bytes - 1));
        coded.insert(coded.end(), low.begin(), low.end());
    }
    const auto rest = in.rest();
    coded.insert(coded.end(), rest.begin(), rest.end());
    BlockDecoder decoder;
    BlockChanges changes;
    if (decoder.decode(coded, old_block, traits, changes)) {
        check_sound(changes, old_block, traits.element_bytes);
    }
    return 0;
}
