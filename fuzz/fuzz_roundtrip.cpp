// Any two blocks: what is decoded equals what was detected.
#include "codec/block_decoder.hpp"
#include "codec/block_encoder.hpp"
#include "codec/swift_decoder.hpp"
#include "codec/swift_encoder.hpp"
#include "delta/detect.hpp"
#include "sound_changes.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

/// The other half of the input, or the old block with a few elements moved.
Bytes changed(FuzzInput& in, const Bytes& old_block, std::size_t width) {
    if (in.number<std::uint8_t>() % 4 == 0) {
        Bytes block = old_block;
        const auto rest = in.take(block.size());
        std::ranges::copy(rest, block.begin());
        return block;
    }
    Bytes block = old_block;
    while (!in.empty() && !block.empty()) {
        const std::size_t at = in.choice(block.size() / width) * width;
        std::uint64_t bits = 0;
        std::memcpy(&bits, block.data() + at, width);
        bits += static_cast<std::uint64_t>(std::int64_t{in.number<std::int8_t>()});
        std::memcpy(block.data() + at, &bits, width);
    }
    return block;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzInput in(data, size);
    const DtypeTraits& traits = traits_of(in.dtype());
    // Mostly short blocks, which are quick; at times one of several chunks.
    const std::size_t elements = in.choice(in.choice(8) == 0 ? 9000 : 400);
    const Bytes old_block = block_from(in, elements * traits.element_bytes);
    const Bytes new_block = changed(in, old_block, traits.element_bytes);

    const BlockRange range{0, 0, elements, traits.element_bytes};
    const TensorSeed seed{1, 2};
    Detector detector;
    DetectedBlock found;
    detector.detect(old_block, new_block, range, seed, true, found);
    check_sound(found.changes, old_block, traits.element_bytes);
    const auto digest = [&](const Bytes& block) {
        return active_kernels().mix_bytes(block.data(), block.size(), seed, 0);
    };
    FUZZ_CHECK(found.old_state == digest(old_block));
    FUZZ_CHECK(found.old_state - found.touched.before + found.touched.after == digest(new_block));

    BlockEncoder encoder;
    Bytes coded;
    encoder.encode(old_block, found.changes, traits, coded);
    Bytes at_once;
    StateDigest old_state;
    const EncodedDifference difference = encoder.encode_difference(
        old_block, new_block, traits, seed, {&seed, 0, &old_state}, 0, at_once);
    FUZZ_CHECK(old_state == found.old_state);
    FUZZ_CHECK(difference.changed_elements == found.changes.count());
    FUZZ_CHECK(difference.touched.before == found.touched.before);
    FUZZ_CHECK(difference.touched.after == found.touched.after);
    BlockDecoder decoder;
    BlockChanges decoded;
    for (const Bytes* bytes : {&coded, &at_once}) {
        FUZZ_CHECK(decoder.decode(*bytes, old_block, traits, decoded).has_value());
        FUZZ_CHECK(decoded == found.changes);
    }
    Bytes swift;
    SwiftEncoder().encode(old_block, found.changes, traits, swift);
    FUZZ_CHECK(SwiftDecoder().decode(swift, old_block, traits, decoded).has_value());
    FUZZ_CHECK(decoded == found.changes);
    return 0;
}
