// The bytes of one fuzz input, taken as numbers, choices and spans until they run out.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "base/bytes.hpp"
#include "wisp/schema.hpp"

/// A promise of the library that any input must leave standing.
#define FUZZ_CHECK(condition)                                                            \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            std::fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                                \
        }                                                                                \
    } while (false)

namespace wisp::fuzz {

class FuzzInput {
  public:
    FuzzInput(const std::uint8_t* data, std::size_t size)
        : rest_(reinterpret_cast<const std::byte*>(data), size) {}

    std::span<const std::byte> take(std::size_t count) {
        const auto taken = rest_.first(std::min(count, rest_.size()));
        rest_ = rest_.subspan(taken.size());
        return taken;
    }
    std::span<const std::byte> rest() { return take(rest_.size()); }
    bool empty() const { return rest_.empty(); }

    /// Zeros once the input has run out.
    template <class T>
    T number() {
        T value{};
        const auto bytes = take(sizeof(T));
        if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
        return value;
    }
    /// Below `count`.
    std::size_t choice(std::size_t count) { return number<std::uint16_t>() % count; }
    Dtype dtype() { return static_cast<Dtype>(choice(kDtypeCount)); }

  private:
    std::span<const std::byte> rest_;
};

/// A block of `size_bytes` bytes that starts as the input says and goes on from it.
inline Bytes block_from(FuzzInput& in, std::size_t size_bytes) {
    const auto given = in.take(std::min<std::size_t>(size_bytes, in.number<std::uint8_t>()));
    Bytes block(given.begin(), given.end());
    std::uint64_t state = 0x9E3779B97F4A7C15 * (given.size() + 1);
    while (block.size() < size_bytes) {
        state = state * 6364136223846793005 + 1442695040888963407;
        // The square root of uniform noise thins out towards zero, like exponents of weights.
        block.push_back(static_cast<std::byte>(((state >> 56) * (state >> 40 & 0xFF)) >> 8));
    }
    return block;
}

}  // namespace wisp::fuzz
