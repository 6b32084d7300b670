// The vector tables this machine can run, best first.
#pragma once

#include <vector>

#include "kernel/kernels.hpp"

namespace wisp {

std::vector<Kernels> vector_kernels_of_this_machine();

}  // namespace wisp
