// Dense and unknown blocks over a base: raw bytes, or sound tables before a fuzzed stream.
#include "codec/block_decoder.hpp"
#include "codec/block_layout.hpp"
#include "codec/step_token.hpp"
#include "codec/token_stream.hpp"
#include "sound_changes.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

void append_table(FuzzInput& in, std::uint32_t limit, Bytes& coded) {
    std::array<std::uint32_t, 256> counts{};
    const std::size_t present = 1 + in.choice(16);
    for (std::size_t i = 0; i < present; ++i) {
        counts[in.number<std::uint8_t>() % limit] = 1U + in.number<std::uint16_t>();
    }
    write_token_table(TokenTable::from_counts(counts), coded);
}

void append_tokens(FuzzInput& in, Bytes& coded) {
    Bytes stream;
    for (std::size_t i = 0; i < kTokenStates; ++i) {
        append_fixed(stream, in.number<std::uint32_t>() | kTokenStateLow);
    }
    const std::size_t words = in.choice(200);
    for (std::size_t i = 0; i < words; ++i) append_fixed(stream, in.number<std::uint16_t>());
    append_varint(coded, stream.size());
    coded.insert(coded.end(), stream.begin(), stream.end());
}

void append_split(FuzzInput& in, std::size_t low_bytes, Bytes& coded) {
    coded.push_back(static_cast<std::byte>(BlockKind::kSplit));
    append_table(in, 256, coded);
    append_tokens(in, coded);
    const Bytes low = block_from(in, low_bytes);
    coded.insert(coded.end(), low.begin(), low.end());
}

void append_steps(FuzzInput& in, const DtypeTraits& traits, Bytes& coded) {
    const auto top = static_cast<unsigned>(
        in.choice(std::min<std::size_t>(kMaxTokenClasses, exponent_field(traits).largest() + 1)));
    coded.push_back(static_cast<std::byte>(BlockKind::kSteps));
    coded.push_back(static_cast<std::byte>(top));
    coded.push_back(static_cast<std::byte>(in.choice(exponent_field(traits).largest() + 1 - top)));
    const std::uint32_t limit = token_limit(std::min(traits.element_bytes, kMaxStepBytes));
    for (unsigned i = 0; i <= top; ++i) append_table(in, limit, coded);
    append_tokens(in, coded);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzInput in(data, size);
    const auto form = in.number<std::uint8_t>() % 4;
    const DtypeTraits& traits = traits_of(in.dtype());
    const std::size_t elements = in.choice(600);
    const Bytes old_block = block_from(in, elements * traits.element_bytes);
    Bytes coded;
    if (form == 1) append_split(in, elements * (traits.element_bytes - 1), coded);
    if (form > 1) append_steps(in, traits, coded);
    const auto rest = in.rest();
    coded.insert(coded.end(), rest.begin(), rest.end());
    BlockDecoder decoder;
    BlockChanges changes;
    if (decoder.decode(coded, old_block, traits, changes)) {
        check_sound(changes, old_block, traits.element_bytes);
    }
    return 0;
}
