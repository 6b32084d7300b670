#include "report_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

namespace wisp::cli {
namespace {

constexpr int kWidth = 1400;
constexpr int kHeight = 1000;
constexpr double kLeft = 190;
constexpr double kRight = kWidth - 40;
constexpr std::size_t kMostColumns = 200;

struct Paint {
    double red, green, blue;
};
constexpr Paint kText{0.11, 0.12, 0.14};
constexpr Paint kSoft{0.33, 0.36, 0.41};
constexpr Paint kLine{0.85, 0.86, 0.88};
constexpr Paint kDelta{0.14, 0.41, 0.70};
constexpr Paint kAnchor{0.71, 0.33, 0.04};
constexpr Paint kMerged{0.42, 0.29, 0.65};
constexpr Paint kFull{0.70, 0.15, 0.12};

/// Ten points of the colour map viridis, straight lines in between.
Paint viridis(double share) {
    constexpr std::array<Paint, 10> kPoints{{{0.267, 0.005, 0.329},
                                             {0.283, 0.157, 0.470},
                                             {0.244, 0.290, 0.537},
                                             {0.191, 0.407, 0.556},
                                             {0.148, 0.511, 0.557},
                                             {0.120, 0.618, 0.536},
                                             {0.208, 0.719, 0.473},
                                             {0.428, 0.806, 0.350},
                                             {0.708, 0.869, 0.173},
                                             {0.993, 0.906, 0.144}}};
    const double at = std::clamp(share, 0.0, 1.0) * (kPoints.size() - 1);
    const auto below = std::min(static_cast<std::size_t>(at), kPoints.size() - 2);
    const double part = at - static_cast<double>(below);
    const Paint& x = kPoints[below];
    const Paint& y = kPoints[below + 1];
    return {std::lerp(x.red, y.red, part), std::lerp(x.green, y.green, part),
            std::lerp(x.blue, y.blue, part)};
}

enum class Align { kStart, kMiddle, kEnd };

std::string hex(const Paint& colour) {
    const auto byte = [](double share) { return std::lround(share * 255); };
    return fmt::format("#{:02x}{:02x}{:02x}", byte(colour.red), byte(colour.green),
                       byte(colour.blue));
}

/// Text between tags: what is foreign must not become markup.
std::string escaped(const std::string& foreign) {
    std::string text;
    for (const char letter : printable(foreign)) {
        switch (letter) {
            case '&': text += "&amp;"; break;
            case '<': text += "&lt;"; break;
            case '>': text += "&gt;"; break;
            default: text += letter;
        }
    }
    return text;
}

/// An SVG, element by element.
class Canvas {
  public:
    Canvas() { box(0, 0, kWidth, kHeight, {1, 1, 1}); }
    void box(double x, double y, double width, double height, const Paint& colour) {
        // Boxes side by side must not let the ground shine through where they meet.
        add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.2f}" height="{:.2f}" fill="{}" )"
            R"(shape-rendering="crispEdges"/>)",
            x, y, width, height, hex(colour));
    }
    void line(double x1, double y1, double x2, double y2, const Paint& colour, double thick) {
        add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}" )"
            R"(stroke-width="{}"/>)",
            x1, y1, x2, y2, hex(colour), thick);
    }
    void text(double x, double y, const std::string& foreign, double size, const Paint& colour,
              Align align = Align::kStart) {
        constexpr std::array<const char*, 3> kAnchors{"start", "middle", "end"};
        add(R"(<text x="{:.1f}" y="{:.1f}" font-size="{}" fill="{}" text-anchor="{}">{}</text>)", x,
            y, size, hex(colour), kAnchors[static_cast<std::size_t>(align)], escaped(foreign));
    }
    std::string svg() const {
        return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" )"
                           R"(width="{0}" height="{1}" font-family="sans-serif">{2}</svg>)"
                           "\n",
                           kWidth, kHeight, elements_);
    }

  private:
    template <class... Values>
    void add(fmt::format_string<Values...> element, Values&&... values) {
        fmt::format_to(std::back_inserter(elements_), element, std::forward<Values>(values)...);
        elements_ += '\n';
    }
    std::string elements_ = "\n";
};

/// 0 also where it is unknown.
std::uint64_t number(const Json& json, const char* name) {
    return json[name].is_null() ? 0 : json[name].get<std::uint64_t>();
}

double ratio(double x, double y) {
    return y == 0 ? 0 : x / y;
}

struct Totals {
    std::uint64_t deltas = 0;
    std::uint64_t delta_bytes = 0;
    std::uint64_t changed = 0;
    std::uint64_t elements = 0;
};

Totals totals_of(const Json& commits) {
    Totals totals;
    for (const Json& commit : commits) {
        if (number(commit, "delta_bytes") == 0) continue;
        ++totals.deltas;
        totals.delta_bytes += number(commit, "delta_bytes");
        totals.changed += number(commit, "changed_elements");
        totals.elements += number(commit, "total_elements");
    }
    return totals;
}

void draw_figures(Canvas& canvas, const Json& all) {
    const Json& run = all["run"];
    const Totals totals = totals_of(all["commits"]);
    const double mean =
        ratio(static_cast<double>(totals.delta_bytes), static_cast<double>(totals.deltas));
    const std::uint64_t full = number(run, "full_bytes");
    canvas.text(40, 50, "wisp", 28, kText);
    canvas.text(120, 50, run["url"].get<std::string>(), 17, kSoft);
    canvas.text(kRight, 50, human_time(run["made_ms"].get<std::int64_t>()) + " UTC", 15, kSoft,
                Align::kEnd);
    const std::array<std::pair<const char*, std::string>, 6> figures{{
        {"newest step",
         run["head_step"].is_null() ? "none yet" : human_count(number(run, "head_step"))},
        {"mean delta", totals.deltas == 0 ? "-" : human_bytes(static_cast<std::uint64_t>(mean))},
        {"full weights", full == 0 ? "-" : human_bytes(full)},
        {"smaller by", mean == 0 ? "-" : fmt::format("{:.0f}x", static_cast<double>(full) / mean)},
        {"weights changed per step",
         fmt::format("{:.3f} %", 100 * ratio(static_cast<double>(totals.changed),
                                             static_cast<double>(totals.elements)))},
        {"a late joiner reads",
         run["join_bytes"].is_null() ? "unknown" : human_bytes(number(run, "join_bytes"))},
    }};
    for (std::size_t i = 0; i < figures.size(); ++i) {
        const double x = 40 + static_cast<double>(i) * (kRight - 40) / figures.size();
        canvas.text(x, 95, figures[i].first, 15, kSoft);
        canvas.text(x, 125, figures[i].second, 26, kText);
    }
}

/// Where a commit stands from left to right.
double place(std::size_t index, std::size_t count) {
    return kLeft + (static_cast<double>(index) + 0.5) * (kRight - kLeft) /
                       static_cast<double>(std::max<std::size_t>(count, 1));
}

void draw_steps(Canvas& canvas, const std::vector<std::uint64_t>& steps, double y) {
    const std::size_t every = std::max<std::size_t>(1, steps.size() / 14);
    for (std::size_t i = 0; i < steps.size(); i += every) {
        canvas.text(place(i, steps.size()), y, human_count(steps[i]), 14, kSoft, Align::kMiddle);
    }
    canvas.text(kLeft - 12, y, "step", 14, kSoft, Align::kEnd);
}

void draw_bytes(Canvas& canvas, const Json& all, double top, double bottom) {
    canvas.text(40, top - 20, "Bytes on the wire", 19, kText);
    std::vector<const Json*> commits;
    for (const Json& commit : all["commits"]) {
        if (number(commit, "delta_bytes") + number(commit, "anchor_bytes") != 0) {
            commits.push_back(&commit);
        }
    }
    if (commits.empty()) {
        canvas.text(kLeft, top + 40, "Nothing was published yet.", 16, kSoft);
        return;
    }
    const auto bytes_of = [](const Json& commit) {
        return static_cast<double>(number(commit, "delta_bytes") + number(commit, "anchor_bytes"));
    };
    const auto full = static_cast<double>(number(all["run"], "full_bytes"));
    double low = bytes_of(*commits.front());
    double high = full;
    for (const Json* commit : commits) {
        low = std::min(low, bytes_of(*commit));
        high = std::max(high, bytes_of(*commit));
    }
    low = std::log10(low / 3);
    high = std::log10(high * 1.6);
    const auto height = [&](double bytes) {
        return bottom - (std::log10(bytes) - low) / (high - low) * (bottom - top);
    };
    for (double power = std::ceil(low); power < high; ++power) {
        const double y = height(std::pow(10, power));
        canvas.line(kLeft, y, kRight, y, kLine, 1);
        canvas.text(kLeft - 12, y + 5, human_bytes(static_cast<std::uint64_t>(std::pow(10, power))),
                    14, kSoft, Align::kEnd);
    }
    const double thick =
        std::clamp(0.7 * (kRight - kLeft) / static_cast<double>(commits.size()), 1.0, 40.0);
    std::vector<std::uint64_t> steps;
    for (std::size_t i = 0; i < commits.size(); ++i) {
        const double x = place(i, commits.size());
        const double y = height(bytes_of(*commits[i]));
        const bool anchor = number(*commits[i], "anchor_bytes") != 0;
        canvas.box(x - thick / 2, y, thick, bottom - y, anchor ? kAnchor : kDelta);
        steps.push_back(number(*commits[i], "step"));
    }
    if (full > 0) canvas.line(kLeft, height(full), kRight, height(full), kFull, 2);
    draw_steps(canvas, steps, bottom + 22);
    const std::array<std::pair<const char*, Paint>, 3> legend{
        {{"delta", kDelta}, {"anchor", kAnchor}, {"full weights", kFull}}};
    double x = kRight - 330;
    for (const auto& [name, colour] : legend) {
        canvas.box(x, top - 33, 14, 14, colour);
        canvas.text(x + 20, top - 20, name, 15, kSoft);
        x += 105;
    }
}

/// "layer 2" before "layer 10"; what is in no layer comes first.
std::pair<int, std::string> rank(const std::string& layer) {
    if (!layer.starts_with("layer ")) return {-1, layer};
    return {static_cast<int>(std::strtol(layer.c_str() + 6, nullptr, 10)), layer};
}

void draw_layers(Canvas& canvas, const Json& table, double top, double bottom) {
    canvas.text(40, top - 20, "Share of each layer that changed", 19, kText);
    const auto& layers = table["layers"];
    std::vector<const Json*> columns;
    for (const Json& step : table["steps"]) {
        if (!step.contains("error")) columns.push_back(&step);
    }
    if (columns.size() > kMostColumns) {
        columns.erase(columns.begin(), columns.end() - kMostColumns);
    }
    if (columns.empty() || layers.empty()) {
        canvas.text(kLeft, top + 40, "No step has changed any weight yet.", 16, kSoft);
        return;
    }
    std::vector<std::size_t> order(layers.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {},
                      [&](std::size_t i) { return rank(layers[i]["name"].get<std::string>()); });
    std::vector<std::size_t> row_of(layers.size());
    for (std::size_t row = 0; row < order.size(); ++row) row_of[order[row]] = row;
    const auto share_of = [&](const Json& cell) {
        const auto elements = layers[cell[0].get<std::size_t>()]["elements"].get<double>();
        return ratio(cell[1].get<double>(), elements);
    };
    double most = 0;
    for (const Json* step : columns) {
        for (const Json& cell : (*step)["cells"]) most = std::max(most, share_of(cell));
    }
    const double tall = (bottom - top) / static_cast<double>(order.size());
    const double wide = (kRight - kLeft) / static_cast<double>(columns.size());
    canvas.box(kLeft, top, kRight - kLeft, bottom - top, viridis(0));
    std::vector<std::uint64_t> steps;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        for (const Json& cell : (*columns[i])["cells"]) {
            const auto row = static_cast<double>(row_of[cell[0].get<std::size_t>()]);
            canvas.box(kLeft + static_cast<double>(i) * wide, top + row * tall, wide, tall,
                       viridis(std::sqrt(ratio(share_of(cell), most))));
        }
        steps.push_back(number(*columns[i], "step"));
    }
    const auto every = static_cast<std::size_t>(std::ceil(14 / tall));
    for (std::size_t row = 0; row < order.size(); row += every) {
        std::string name = layers[order[row]]["name"].get<std::string>();
        if (name.size() > 20) name = "..." + name.substr(name.size() - 17);
        canvas.text(kLeft - 12, top + (static_cast<double>(row) + 0.5) * tall + 5, name, 14, kSoft,
                    Align::kEnd);
    }
    draw_steps(canvas, steps, bottom + 22);
    for (int i = 0; i < 120; ++i) {
        canvas.box(kRight - 220 + i, top - 33, 1.5, 14, viridis(std::sqrt(i / 119.0)));
    }
    canvas.text(kRight - 230, top - 20, "0 %", 15, kSoft, Align::kEnd);
    canvas.text(kRight - 92, top - 20, fmt::format("{:.3g} %", 100 * most), 15, kSoft);
}

}  // namespace

std::string draw_report(const Json& everything) {
    Canvas canvas;
    draw_figures(canvas, everything);
    draw_bytes(canvas, everything, 200, 460);
    draw_layers(canvas, everything["layers"], 560, 940);
    return canvas.svg();
}

}  // namespace wisp::cli
