// Random numbers from one seed: xoshiro256** started by splitmix64. The same everywhere, so that a
// simulation or a pause between retries can be repeated; never for secrets. Not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace wisp {

class Random {
  public:
    explicit Random(std::uint64_t seed) {
        for (std::uint64_t& word : state_) {
            seed += 0x9E3779B97F4A7C15;
            std::uint64_t mixed = seed;
            mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
            mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
            word = mixed ^ (mixed >> 31);
        }
    }

    std::uint64_t next() {
        const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
        const std::uint64_t shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    /// 0 to n - 1; 0 when n is 0. The bias of a remainder is far below what anyone here can see.
    std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : next() % n; }

    bool chance(double probability) {
        return static_cast<double>(next() >> 11) * 0x1p-53 < probability;
    }

  private:
    std::array<std::uint64_t, 4> state_{};
};

/// A seed nobody can guess and no two processes share.
std::uint64_t fresh_seed();

}  // namespace wisp
