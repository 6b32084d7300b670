// An element's bits turned so that its exponent comes to the top: doc/format.md section 11.
#pragma once

#include <bit>

namespace wisp {

template <class T>
constexpr T rotate_sign_down(T bits) {
    return std::rotl(bits, 1);
}
template <class T>
constexpr T rotate_sign_up(T bits) {
    return std::rotr(bits, 1);
}

}  // namespace wisp
