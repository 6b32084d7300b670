#include "usage_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "output.hpp"
#include "parser_words.hpp"

namespace wisp::cli {
namespace {

constexpr int kUsageExit = 2;

/// Letters to insert, remove, change or swap with their neighbour to get from one to the other.
std::size_t edit_distance(const std::string& a, const std::string& b) {
    const std::size_t width = b.size() + 1;
    std::vector<std::size_t> table((a.size() + 1) * width);
    const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& {
        return table[i * width + j];
    };
    for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
    for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t change = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
            at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, change});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
            }
        }
    }
    return table.back();
}

/// The innermost verb that was understood.
const CLI::App& understood(const CLI::App& parser) {
    const CLI::App* at = &parser;
    while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
    return *at;
}

std::string full_name(const CLI::App& verb) {
    const CLI::App* parent = verb.get_parent();
    if (parent == nullptr) return "wisp";
    return full_name(*parent) + " " + verb.get_name();
}

/// The first word that the verb does not know, if that is what is wrong.
std::string stranger_among(std::span<char* const> words, const CLI::App& verb) {
    std::vector<std::string> options;
    add_options_of(verb, options);
    for (const std::string_view word : words) {
        if (word == "--") break;
        if (!word.starts_with("--")) continue;
        const std::string name(word.substr(0, word.find('=')));
        if (std::ranges::find(options, name) == options.end()) return name;
    }
    return {};
}

std::string explain(const CLI::App& parser, const CLI::App& verb, const CLI::ParseError& error,
                    std::span<char* const> words) {
    std::vector<std::string> below;
    for (const CLI::App* part : verbs_below(verb)) below.push_back(part->get_name());
    if (!below.empty() && verb.get_subcommands().empty()) {
        for (const std::string_view word : words) {
            if (word.starts_with("-") || word == verb.get_name()) continue;
            const std::string meant = nearest_word(std::string(word), below);
            return fmt::format("there is no verb '{}'{}", printable(word),
                               meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant));
        }
        return &verb == &parser ? "name a verb"
                                : "say what to do: " + fmt::format("{}", fmt::join(below, ", "));
    }
    if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return error.what();
    const std::string stranger = stranger_among(words, verb);
    if (stranger.empty()) return error.what();
    std::vector<std::string> options;
    add_options_of(verb, options);
    const std::string meant = nearest_word(stranger, options);
    return fmt::format("there is no option {}{}", printable(stranger),
                       meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

}  // namespace

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
    std::string nearest;
    // A third of the letters may be wrong: "pulbish" is publish, "frobnicate" is nothing.
    std::size_t best = std::max<std::size_t>(word.size() / 3, 1) + 1;
    for (const std::string& name : known) {
        const bool begins = word.size() > 1 && name.starts_with(word);
        const std::size_t distance = begins ? 1 : edit_distance(word, name);
        if (distance >= best) continue;
        best = distance;
        nearest = name;
    }
    return nearest;
}

int tell_usage_error(const CLI::App& parser, const CLI::ParseError& error,
                     std::span<char* const> words) {
    if (error.get_exit_code() == 0) return parser.exit(error);
    const CLI::App& verb = understood(parser);
    const std::string name = full_name(verb);
    const std::string message = fmt::format("{} ('{} --help' shows how it is called)",
                                            explain(parser, verb, error, words), name);
    const bool json = std::ranges::any_of(
        words, [](const char* word) { return std::string_view(word) == "--json"; });
    if (json) {
        print_json({{"verb", verb.get_parent() == nullptr ? nlohmann::json()
                                                          : nlohmann::json(verb.get_name())},
                    {"ok", false},
                    {"error", "usage"},
                    {"message", message},
                    {"exit_code", kUsageExit}});
    }
    fmt::print(stderr, "{}: {}\n", name, message);
    return kUsageExit;
}

}  // namespace wisp::cli
