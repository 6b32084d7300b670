#include <fmt/format.h>

#include <memory>

#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct VerbWords {
    std::string name;
    std::string help;
    std::vector<std::string> options;
};

/// Read off the parser itself, so that completion cannot drift from the verbs.
void collect_options(const CLI::App& app, std::vector<std::string>& words) {
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
        for (const std::string& name : option->get_snames()) words.push_back("-" + name);
    }
    for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (group->get_name().empty() || group->get_display_name().starts_with("[")) {
            collect_options(*group, words);
        }
    }
}

std::vector<VerbWords> collect_verbs(const CLI::App& app) {
    std::vector<VerbWords> verbs;
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
        VerbWords words{verb->get_name(), verb->get_description(), {}};
        collect_options(*verb, words.options);
        verbs.push_back(std::move(words));
    }
    return verbs;
}

void print_bash(const std::vector<VerbWords>& verbs) {
    fmt::print(
        "_wisp() {{\n  local cur=${{COMP_WORDS[COMP_CWORD]}} words\n  case ${{COMP_WORDS[1]}} "
        "in\n");
    std::string names;
    for (const VerbWords& verb : verbs) {
        fmt::print("    {}) words='{}' ;;\n", verb.name, fmt::join(verb.options, " "));
        names += " " + verb.name;
    }
    fmt::print("  esac\n  if [ \"$COMP_CWORD\" -eq 1 ]; then words='{} --help --version'; fi\n",
               names.substr(1));
    fmt::print(
        "  if [ \"${{COMP_WORDS[COMP_CWORD-1]}}\" = --codec ]; then words='compact plain gap'; "
        "fi\n");
    fmt::print("  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}}\n");
    fmt::print("complete -o default -o bashdefault -F _wisp wisp\n");
}

void print_zsh(const std::vector<VerbWords>& verbs) {
    fmt::print("#compdef wisp\n_wisp() {{\n  if (( CURRENT == 2 )); then\n    local -a verbs=(\n");
    for (const VerbWords& verb : verbs) fmt::print("      '{}:{}'\n", verb.name, verb.help);
    fmt::print("    )\n    _describe verb verbs\n    return\n  fi\n  case $words[2] in\n");
    for (const VerbWords& verb : verbs) {
        fmt::print("    {}) compadd -- {} ;;\n", verb.name, fmt::join(verb.options, " "));
    }
    fmt::print("  esac\n  _files\n}}\ncompdef _wisp wisp\n");
}

void print_fish(const std::vector<VerbWords>& verbs) {
    for (const VerbWords& verb : verbs) {
        fmt::print("complete -c wisp -n __fish_use_subcommand -a {} -d '{}'\n", verb.name,
                   verb.help);
        for (const std::string& option : verb.options) {
            const bool is_long = option.starts_with("--");
            fmt::print("complete -c wisp -n '__fish_seen_subcommand_from {}' -{} {}\n", verb.name,
                       is_long ? "l" : "s", option.substr(is_long ? 2 : 1));
        }
    }
}

}  // namespace

void add_completion(CLI::App& app, Outcome&) {
    auto* verb = app.add_subcommand("completion", "Print shell completion for bash, zsh or fish");
    auto shell = std::make_shared<std::string>();
    verb->add_option("shell", *shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    verb->footer(R"help(Examples:
  eval "$(wisp completion bash)"
  wisp completion zsh > ~/.zfunc/_wisp
  wisp completion fish > ~/.config/fish/completions/wisp.fish)help");
    verb->callback([shell, &app] {
        const auto verbs = collect_verbs(app);
        if (*shell == "bash") print_bash(verbs);
        if (*shell == "zsh") print_zsh(verbs);
        if (*shell == "fish") print_fish(verbs);
    });
}

}  // namespace wisp::cli
