// The vector tables this machine can run, best first.
#pragma once

#include <vector>

#include "kernel/kernels.hpp"

namespace wisp {

std::vector<Kernels> vector_kernels_of_this_machine();

/// Whether two arrays that are read at once arrive sooner if nobody asks for what comes next. So it
/// is on AMD's processors, whose hardware goes on into the next page; Intel's stops at its end.
bool reads_ahead_by_itself();

/// Those of vector_weights.cpp, vector_dense.cpp and vector_tokens.cpp, of the instruction set that
/// Highway is told to use.
void set_weight_kernels(Kernels& table);
void set_dense_kernels(Kernels& table);
void set_token_kernels(Kernels& table);

}  // namespace wisp
