#include "wisp/schema.hpp"

#include <array>

namespace wisp {
namespace {

// name, bits, element bytes, exponent shift, exponent bits, sign-magnitude order
constexpr std::array<DtypeTraits, kDtypeCount> kTraits = {{
    {"BOOL", 8, 1, 0, 0, false},
    {"F4", 4, 1, 0, 0, false},
    {"F6_E2M3", 6, 1, 0, 0, false},
    {"F6_E3M2", 6, 1, 0, 0, false},
    {"U8", 8, 1, 0, 0, false},
    {"I8", 8, 1, 0, 0, false},
    {"F8_E5M2", 8, 1, 2, 5, true},
    {"F8_E4M3", 8, 1, 3, 4, true},
    {"F8_E8M0", 8, 1, 0, 8, false},
    {"F8_E4M3FNUZ", 8, 1, 3, 4, true},
    {"F8_E5M2FNUZ", 8, 1, 2, 5, true},
    {"I16", 16, 2, 0, 0, false},
    {"U16", 16, 2, 0, 0, false},
    {"F16", 16, 2, 10, 5, true},
    {"BF16", 16, 2, 7, 8, true},
    {"I32", 32, 4, 0, 0, false},
    {"U32", 32, 4, 0, 0, false},
    {"F32", 32, 4, 23, 8, true},
    // Real part in the low half: its exponent is the class, a change of the imaginary part alone is
    // a far step. Complex weights are too rare for more.
    {"C64", 64, 8, 23, 8, false},
    {"F64", 64, 8, 52, 11, true},
    {"I64", 64, 8, 0, 0, false},
    {"U64", 64, 8, 0, 0, false},
}};

}  // namespace

const DtypeTraits& traits_of(Dtype dtype) {
    return kTraits[static_cast<std::size_t>(dtype)];
}

std::optional<Dtype> parse_dtype(std::string_view name) {
    for (std::size_t i = 0; i < kTraits.size(); ++i) {
        if (kTraits[i].name == name) return static_cast<Dtype>(i);
    }
    return std::nullopt;
}

std::optional<Dtype> dtype_from_code(std::uint64_t code) {
    if (code >= kTraits.size()) return std::nullopt;
    return static_cast<Dtype>(code);
}

}  // namespace wisp
