// Prints the kernel in use; fails when WISP_KERNEL names none of this machine.
#include <cstdio>

#include "kernel/kernels.hpp"
#include "wisp/delta.hpp"

int main() {
    const auto choice = wisp::check_kernel_choice();
    std::puts(choice ? wisp::kernel_name().c_str() : choice.error().text.c_str());
    return choice ? 0 : 1;
}
