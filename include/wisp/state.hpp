// The digest of a model state, and the changes that lead from one state to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wisp {

/// The running digest of a model state (doc/format.md section 3): a sum, modulo 2^64 in two
/// independent halves, of one mix per aligned 64-bit word of every tensor. Being a sum it can be
/// updated in O(changed): take away the old words, add the new ones. It guards against accidents
/// and wrong bases, not against forgery; the seal and signatures do that.
struct StateDigest {
    std::uint64_t a = 0;
    std::uint64_t b = 0;

    StateDigest& operator+=(const StateDigest& other) {
        a += other.a;
        b += other.b;
        return *this;
    }
    StateDigest& operator-=(const StateDigest& other) {
        a -= other.a;
        b -= other.b;
        return *this;
    }
    friend StateDigest operator+(StateDigest x, const StateDigest& y) { return x += y; }
    friend StateDigest operator-(StateDigest x, const StateDigest& y) { return x -= y; }
    friend bool operator==(const StateDigest&, const StateDigest&) = default;
};

/// 32 lower-case hexadecimal digits, half `a` first.
std::string to_text(const StateDigest& digest);
std::optional<StateDigest> parse_digest(std::string_view text);

/// What changed in one block of one tensor: strictly increasing positions, and the bits at each
/// before and after. The one type that detection yields and decoding yields again. Absolute:
/// applying it twice is the same as applying it once, and the old bits lead back. All changes of a
/// step are never held at once: they flow block by block, so that memory does not grow with the
/// model.
struct BlockChanges {
    /// Relative to the block's first element.
    std::vector<std::uint32_t> positions;
    /// positions.size() elements of `element_bytes` each, little-endian, side by side.
    std::vector<std::byte> old_bits;
    std::vector<std::byte> new_bits;
    unsigned element_bytes = 1;

    std::size_t count() const { return positions.size(); }
    bool empty() const { return positions.empty(); }
    void clear() {
        positions.clear();
        old_bits.clear();
        new_bits.clear();
    }
    friend bool operator==(const BlockChanges&, const BlockChanges&) = default;
};

/// Proven changes of one block, and where it lies.
struct MovedBlock {
    std::size_t tensor = 0;
    std::uint64_t first_element = 0;
    BlockChanges changes;
};

/// How many of a tensor's words, of 8 bytes each, a step touches: for weights that lie elsewhere
/// (wisp/relay.hpp).
struct TouchedTensor {
    std::size_t tensor = 0;  // in the order of the schema
    std::size_t words = 0;
};

/// Where the words of one tensor lie in the room for all: their indices, ascending, of 4 bytes
/// each and padded to a multiple of 8, then the words themselves.
constexpr std::size_t index_bytes_of(std::size_t words) {
    return (words * 4 + 7) / 8 * 8;
}
constexpr std::size_t room_bytes_of(std::size_t words) {
    return index_bytes_of(words) + words * 8;
}

}  // namespace wisp
