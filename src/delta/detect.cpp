#include "delta/detect.hpp"

#include "kernel/scatter.hpp"

namespace wisp {

/// Positions and both elements there side by side, and how the digest moves, of each word once. In
/// one loop, since what a position leads to is one line of each part.
template <class T>
TouchedSums Detector::append_changes(const Parts& parts, std::span<const std::uint32_t> positions,
                                     const TensorSeed& seed, std::size_t at,
                                     BlockChanges& changes) {
    const std::size_t size = parts.old_part.size();
    const std::byte* const old_part = parts.old_part.data();
    const std::byte* const new_part = parts.new_part.data();
    std::byte* old_bits = changes.old_bits.data() + at * sizeof(T);
    std::byte* new_bits = changes.new_bits.data() + at * sizeof(T);
    const auto first = static_cast<std::uint32_t>(parts.first);
    std::ranges::transform(positions, changes.positions.data() + at,
                           [&](std::uint32_t position) { return position + first; });
    // An eighth: whole vectors take less time.
    if (positions.size() * 8 * sizeof(T) > size) {
        gather(old_part, positions, sizeof(T), old_bits);
        gather(new_part, positions, sizeof(T), new_bits);
        return active_kernels()
            .compare(old_part, new_part, size / sizeof(T), sizeof(T), seed, parts.first_word)
            .touched;
    }
    TouchedMixer mixer(seed, parts.first_word);
    std::uint32_t last = ~0U;
    for (const std::uint32_t position : positions) {
        std::memcpy(old_bits, old_part + position * sizeof(T), sizeof(T));
        std::memcpy(new_bits, new_part + position * sizeof(T), sizeof(T));
        old_bits += sizeof(T);
        new_bits += sizeof(T);
        const auto word = static_cast<std::uint32_t>(position * sizeof(T) / 8);
        if (word == last) continue;
        last = word;
        mixer.add(word, load_word(old_part, std::size_t{word} * 8, size),
                  load_word(new_part, std::size_t{word} * 8, size));
    }
    return mixer.sums();
}

void Detector::add_part(const Parts& parts, const TensorSeed& seed, bool digest_old,
                        DetectedBlock& found) {
    BlockChanges& changes = found.changes;
    const unsigned width = changes.element_bytes;
    positions_.resize(kDetectElements);
    const std::size_t changed = active_kernels().scan(
        parts.old_part.data(), parts.new_part.data(), parts.old_part.size() / width, width,
        positions_.data(), {digest_old ? &seed : nullptr, parts.first_word, &found.old_state});
    const std::size_t before = changes.count();
    changes.positions.resize(before + changed);
    changes.old_bits.resize((before + changed) * width);
    changes.new_bits.resize((before + changed) * width);
    found.touched += with_element_type(width, [&]<class T>(T) {
        return append_changes<T>(parts, {positions_.data(), changed}, seed, before, changes);
    });
}

}  // namespace wisp
