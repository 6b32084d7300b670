// The running digest of a model state: doc/format.md section 3.
//
// A sum, modulo 2^64 in two independent halves, of one mix per aligned 64-bit word of every tensor.
// Being a sum it can be updated in O(changed): take away the old words, add the new ones. It guards
// against accidents and wrong bases, not against forgery; the seal and signatures do that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace wisp {

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

}  // namespace wisp
