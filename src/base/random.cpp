#include "base/random.hpp"

#include <random>

namespace wisp {

std::uint64_t fresh_seed() {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace wisp
