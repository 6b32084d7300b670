// The order of the values of a dtype, in which a change is a step: doc/format.md section 10.
#pragma once

#include <cstdint>
#include <limits>

namespace wisp {

/// Puts the elements of a dtype in the order of their values, and back.
template <class T>
class ValueOrder {
  public:
    explicit ValueOrder(bool sign_magnitude)
        : magnitude_(sign_magnitude ? static_cast<T>(std::numeric_limits<T>::max() / 2) : T{0}) {}

    /// An involution: flips the magnitude bits of negative floats. Signs are as good as random, so
    /// it must not branch.
    T operator()(T bits) const {
        const T negative = static_cast<T>(T{0} - (bits >> (sizeof(T) * 8 - 1)));
        return static_cast<T>(bits ^ (negative & magnitude_));
    }

  private:
    T magnitude_;
};

/// Steps of either direction as numbers that grow with their size.
template <class T>
constexpr T zigzag(T step) {
    return static_cast<T>((step << 1) ^ (T{0} - (step >> (sizeof(T) * 8 - 1))));
}
template <class T>
constexpr T from_zigzag(T number) {
    return static_cast<T>((number >> 1) ^ (T{0} - (number & 1)));
}

}  // namespace wisp
