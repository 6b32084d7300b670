#include "sim/keyring.hpp"

#include <array>
#include <limits>

namespace wisp::sim {
namespace {

constexpr std::int64_t kYearMs = std::int64_t{366} * 24 * 3'600'000;

SigningKey make_key(Random& random) {
    std::array<std::byte, 32> seed{};
    for (std::byte& byte : seed) byte = static_cast<std::byte>(random.below(256));
    return *SigningKey::from_seed(seed);
}

}  // namespace

Keyring::Keyring(std::uint64_t seed, std::int64_t now_ms)
    : random_(seed),
      root_(make_key(random_)),
      root_public_(root_.public_key()),
      newest_{make_key(random_), std::nullopt} {
    renew(now_ms, 20'000 + static_cast<std::int64_t>(random_.below(100'000)));
}

void Keyring::renew(std::int64_t now_ms, std::int64_t lasts_ms) {
    if (serial_ > 0 && random_.chance(0.2)) newest_.key = make_key(random_);
    const std::int64_t ends_ms = now_ms + lasts_ms;
    newest_.certificate = *Certificate::make(root_, newest_.key.public_key(), ++serial_, ends_ms);
    const auto some = static_cast<std::int64_t>(random_.below(10'000));
    next_ms_ = random_.chance(0.25) ? ends_ms + some : ends_ms - some;
}

void Keyring::look_at_clock(std::int64_t now_ms) {
    if (now_ms < next_ms_) return;
    renew(now_ms, 20'000 + static_cast<std::int64_t>(random_.below(100'000)));
}

void Keyring::renew_for_good(std::int64_t now_ms) {
    renew(now_ms, kYearMs);
    next_ms_ = std::numeric_limits<std::int64_t>::max();
}

}  // namespace wisp::sim
