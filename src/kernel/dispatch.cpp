#include <fmt/format.h>
#include <strings.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "kernel/kernels.hpp"
#include "kernel/vector.hpp"

namespace wisp {
namespace {

std::vector<Kernels> list_kernels() {
    std::vector<Kernels> list = {kReferenceKernels};
    for (const Kernels& table : vector_kernels_of_this_machine()) list.push_back(table);
    return list;
}

const char* asked_for() {
    const char* name = std::getenv("WISP_KERNEL");
    return name != nullptr && *name != '\0' ? name : nullptr;
}

const Kernels* find_by_name(const char* name) {
    for (const Kernels& table : all_kernels()) {
        if (strcasecmp(std::string(table.name).c_str(), name) == 0) return &table;
    }
    return nullptr;
}

const Kernels& choose() {
    const auto list = all_kernels();
    if (const char* name = asked_for()) {
        if (const Kernels* table = find_by_name(name)) return *table;
    }
    return list.size() > 1 ? list[1] : list[0];
}

}  // namespace

std::span<const Kernels> all_kernels() {
    static const std::vector<Kernels> list = list_kernels();
    return list;
}

const Kernels& active_kernels() {
    static const Kernels& chosen = choose();
    return chosen;
}

Result<void> check_kernel_choice() {
    const char* name = asked_for();
    if (name == nullptr || find_by_name(name) != nullptr) return {};
    std::string known;
    for (const Kernels& table : all_kernels()) known += fmt::format(" {}", table.name);
    return fail(ErrorKind::kInvalid,
                fmt::format("WISP_KERNEL={} names no kernel of this machine; choose one of{}, or "
                            "unset it",
                            shown(name), known));
}

}  // namespace wisp
