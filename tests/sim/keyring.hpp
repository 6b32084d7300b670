// The keys of a signed run: a root, and certificates that end and are renewed by the clock.
//
// Mostly in time, sometimes late, now and then for another key. Writers take the newest when they
// start; a process that sleeps through a renewal goes on with what it has until it is refused.
#pragma once

#include <cstdint>

#include "base/random.hpp"
#include "wisp/run.hpp"

namespace wisp::sim {

class Keyring {
  public:
    Keyring(std::uint64_t seed, std::int64_t now_ms);

    const PublicKey& root() const { return root_public_; }
    const RunSigner& newest() const { return newest_; }
    /// To be called as time goes by.
    void look_at_clock(std::int64_t now_ms);
    /// One that nobody will see the end of.
    void renew_for_good(std::int64_t now_ms);

  private:
    void renew(std::int64_t now_ms, std::int64_t lasts_ms);

    Random random_;
    SigningKey root_;
    PublicKey root_public_;
    RunSigner newest_;
    std::uint64_t serial_ = 0;
    std::int64_t next_ms_ = 0;
};

}  // namespace wisp::sim
