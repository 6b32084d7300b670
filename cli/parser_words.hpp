// The words that the parser knows, read off the parser itself: completion offers them, and a
// mistyped word is held against them. Sees CLI11, so only files that need these include it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace wisp::cli {

/// An option group is no verb: its options belong to the verb around it.
inline bool is_group(const CLI::App& app) {
    return app.get_name().empty() || app.get_display_name().starts_with("[");
}

inline std::vector<const CLI::App*> apps_below(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App*) { return true; });
}

/// Those that --help shows.
inline std::vector<const CLI::App*> verbs_below(const CLI::App& app) {
    return app.get_subcommands(
        [](const CLI::App* below) { return !is_group(*below) && !below->get_group().empty(); });
}

/// "--output" and "-o" of a verb, those of its groups included.
inline void add_options_of(const CLI::App& app, std::vector<std::string>& words) {
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
        for (const std::string& name : option->get_snames()) words.push_back("-" + name);
    }
    for (const CLI::App* group : apps_below(app)) {
        if (is_group(*group)) add_options_of(*group, words);
    }
}

}  // namespace wisp::cli
