#include <fmt/format.h>

#include <memory>

#include "parser_words.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct VerbWords {
    std::string name;
    std::string help;
    std::vector<std::string> options;
    std::vector<VerbWords> parts;
};

std::vector<VerbWords> collect_verbs(const CLI::App& app) {
    std::vector<VerbWords> verbs;
    for (const CLI::App* verb : verbs_below(app)) {
        VerbWords words{verb->get_name(), verb->get_description(), {}, collect_verbs(*verb)};
        add_options_of(*verb, words.options);
        verbs.push_back(std::move(words));
    }
    return verbs;
}

std::string names_of(const std::vector<VerbWords>& verbs) {
    std::string names;
    for (const VerbWords& verb : verbs) names += (names.empty() ? "" : " ") + verb.name;
    return names;
}

/// In single quotes, as all three shells read them.
std::string quoted(const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
    return out + "'";
}

void print_bash(const std::vector<VerbWords>& verbs) {
    fmt::print(
        "_wisp() {{\n  local cur=${{COMP_WORDS[COMP_CWORD]}} words\n  case ${{COMP_WORDS[1]}} "
        "in\n");
    for (const VerbWords& verb : verbs) {
        fmt::print("    {}) words='{}' ;;\n", verb.name, fmt::join(verb.options, " "));
    }
    fmt::print("  esac\n");
    for (const VerbWords& verb : verbs) {
        if (verb.parts.empty()) continue;
        fmt::print("  if [ \"${{COMP_WORDS[1]}}\" = {} ]; then\n", verb.name);
        fmt::print("    if [ \"$COMP_CWORD\" -eq 2 ]; then words='{} --help'; fi\n",
                   names_of(verb.parts));
        fmt::print("    case ${{COMP_WORDS[2]}} in\n");
        for (const VerbWords& part : verb.parts) {
            fmt::print("      {}) [ \"$COMP_CWORD\" -gt 2 ] && words='{}' ;;\n", part.name,
                       fmt::join(part.options, " "));
        }
        fmt::print("    esac\n  fi\n");
    }
    fmt::print("  if [ \"$COMP_CWORD\" -eq 1 ]; then words='{} --help --version'; fi\n",
               names_of(verbs));
    fmt::print(
        "  if [ \"${{COMP_WORDS[COMP_CWORD-1]}}\" = --codec ]; then words='compact swift plain "
        "gap'; "
        "fi\n");
    fmt::print("  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}}\n");
    fmt::print("complete -o default -o bashdefault -F _wisp wisp\n");
}

void print_zsh(const std::vector<VerbWords>& verbs) {
    fmt::print("#compdef wisp\n_wisp() {{\n  if (( CURRENT == 2 )); then\n    local -a verbs=(\n");
    for (const VerbWords& verb : verbs) {
        fmt::print("      {}\n", quoted(verb.name + ":" + verb.help));
    }
    fmt::print("    )\n    _describe verb verbs\n    return\n  fi\n");
    for (const VerbWords& verb : verbs) {
        if (verb.parts.empty()) continue;
        fmt::print("  if [[ $words[2] == {} ]]; then\n", verb.name);
        fmt::print("    if (( CURRENT == 3 )); then compadd -- {}; return; fi\n",
                   names_of(verb.parts));
        fmt::print("    case $words[3] in\n");
        for (const VerbWords& part : verb.parts) {
            fmt::print("      {}) compadd -- {} ;;\n", part.name, fmt::join(part.options, " "));
        }
        fmt::print("    esac\n    _files\n    return\n  fi\n");
    }
    fmt::print("  case $words[2] in\n");
    for (const VerbWords& verb : verbs) {
        fmt::print("    {}) compadd -- {} ;;\n", verb.name, fmt::join(verb.options, " "));
    }
    // Read by eval it says what it completes; found by name, it is the first call already.
    fmt::print(
        "  esac\n  _files\n}}\nif [[ $funcstack[1] == _wisp ]]; then _wisp \"$@\"\n"
        "else compdef _wisp wisp; fi\n");
}

/// The options of one verb, offered where `condition` holds.
void print_fish_options(const std::string& condition, const std::vector<std::string>& options) {
    for (const std::string& option : options) {
        const bool is_long = option.starts_with("--");
        fmt::print("complete -c wisp -n '{}' -{} {}\n", condition, is_long ? "l" : "s",
                   option.substr(is_long ? 2 : 1));
    }
}

void print_fish(const std::vector<VerbWords>& verbs) {
    for (const VerbWords& verb : verbs) {
        fmt::print("complete -c wisp -n __fish_use_subcommand -a {} -d {}\n", verb.name,
                   quoted(verb.help));
        const std::string seen = "__fish_seen_subcommand_from " + verb.name;
        print_fish_options(seen, verb.options);
        for (const VerbWords& part : verb.parts) {
            fmt::print(
                "complete -c wisp -n '{}; and not __fish_seen_subcommand_from {}' -a {} "
                "-d {}\n",
                seen, names_of(verb.parts), part.name, quoted(part.help));
            print_fish_options(seen + "; and __fish_seen_subcommand_from " + part.name,
                               part.options);
        }
    }
}

}  // namespace

void add_completion(Command& app, Outcome&) {
    auto* verb = app.add_subcommand("completion", "Print shell completion for bash, zsh or fish");
    auto shell = std::make_shared<std::string>();
    verb->add_option("shell", *shell, "bash, zsh or fish")
        ->required()
        ->check(one_of({"bash", "zsh", "fish"}));
    verb->footer(R"help(Examples:
  eval "$(wisp completion bash)"
  wisp completion zsh > ~/.zfunc/_wisp
  wisp completion fish > ~/.config/fish/completions/wisp.fish)help");
    verb->callback([shell, &app] {
        const auto verbs = collect_verbs(app.parser());
        if (*shell == "bash") print_bash(verbs);
        if (*shell == "zsh") print_zsh(verbs);
        if (*shell == "fish") print_fish(verbs);
    });
}

}  // namespace wisp::cli
