#include "layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "output.hpp"
#include "terminal.hpp"

namespace wisp::cli {
namespace {

struct LayerRow {
    std::string name;
    std::uint64_t changed = 0;
    std::uint64_t elements = 0;
    std::uint64_t bytes = 0;
};

std::vector<LayerRow> group_by_layer(const FileReport& report) {
    std::vector<LayerRow> rows;
    for (const TensorReport& tensor : report.tensors) {
        const std::string name = layer_of(tensor.tensor.name);
        auto row = std::ranges::find(rows, name, &LayerRow::name);
        if (row == rows.end()) row = rows.insert(rows.end(), LayerRow{name, 0, 0, 0});
        row->changed += tensor.changed_elements;
        row->elements += tensor.element_count;
        row->bytes += tensor.stored_bytes;
    }
    // "layer 2" before "layer 10", and what is in no layer first.
    std::ranges::stable_sort(rows, {}, [](const LayerRow& row) {
        return row.name.starts_with("layer ") ? std::pair(row.name.size(), row.name)
                                              : std::pair(std::size_t{0}, std::string());
    });
    return rows;
}

}  // namespace

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

void print_layers(const FileReport& report) {
    const auto rows = group_by_layer(report);
    std::uint64_t largest = 0;
    std::size_t width = 8;
    for (const LayerRow& row : rows) {
        largest = std::max(largest, row.changed);
        width = std::max(width, std::min<std::size_t>(row.name.size(), 44));
    }
    const std::string title = fmt::format("{:{}}  {:>12}  {:>9}  {:>9}  bits/change", "where",
                                          width, "changed", "share", "bytes");
    fmt::print("\n{}\n", coloured(Colour::kBold, title));
    for (const LayerRow& row : rows) {
        const std::string share =
            row.elements == 0 ? "?"
                              : fmt::format("{:.3f} %", 100 * ratio(row.changed, row.elements));
        fmt::print("{:{}}  {:>12}  {:>9}  {:>9}  {:>5.2f}  {}\n", printable(row.name), width,
                   human_count(row.changed), share, human_bytes(row.bytes),
                   8 * ratio(row.bytes, row.changed),
                   coloured(Colour::kGreen, bar(ratio(row.changed, largest), 24)));
    }
}

}  // namespace wisp::cli
