#include "layers.hpp"

#include <algorithm>

namespace wisp::cli {

std::string layer_of(const std::string& tensor) {
    for (const char* lead : {".layers.", ".h.", ".blocks.", "layers."}) {
        const auto at = tensor.find(lead);
        if (at == std::string::npos) continue;
        const auto begin = at + std::string(lead).size();
        const auto end = tensor.find('.', begin);
        const std::string number = tensor.substr(begin, end - begin);
        if (!number.empty() &&
            std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; })) {
            return "layer " + number;
        }
    }
    return tensor;
}

}  // namespace wisp::cli
