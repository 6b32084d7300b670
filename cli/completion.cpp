#include <fmt/format.h>

#include <memory>

#include "verbs.hpp"

namespace wisp::cli {
namespace {

// Each asks "wisp __complete WORD…" (cli/candidates.hpp) with all words up to the cursor.

constexpr const char* kBash = R"(_wisp() {
    local cur=${COMP_WORDS[COMP_CWORD]} kind word help
    [[ $cur == [=:] ]] && cur=
    COMPREPLY=()
    while IFS=$'\t' read -r word help; do
        if [[ -z $kind ]]; then kind=$word; else COMPREPLY+=("$word"); fi
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    case $kind in
        :files | :folders)
            compopt -o filenames 2>/dev/null
            [[ $kind == :files ]] && kind=-f || kind=-d
            mapfile -t COMPREPLY < <(compgen "$kind" -- "$cur")
            ;;
    esac
}
complete -F _wisp wisp
)";

// Read by eval it says what it completes; found by name, it is the first call already.
constexpr const char* kZsh = R"(#compdef wisp
_wisp() {
    local -a lines items
    local line
    lines=("${(@f)$("$words[1]" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    # Behind "--into=" a path begins, not the word.
    [[ $lines[1] != :words && $words[CURRENT] == --*=* ]] && compset -P 1 '*='
    case $lines[1] in
        :files) _files; return ;;
        :folders) _files -/; return ;;
    esac
    for line in "${(@)lines[2,-1]}"; do
        items+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    (( $#items )) && _describe wisp items
}
if [[ $funcstack[1] == _wisp ]]; then _wisp "$@"
else compdef _wisp wisp; fi
)";

constexpr const char* kFish = R"(function __wisp_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l answer ($words[1] __complete $words[2..-1] 2>/dev/null)
    # Behind "--into=" a path begins, not the word.
    set -l lead (string match -r -- '^--[^=]+=' $words[-1])
    set -l begun (string replace -r -- '^--[^=]+=' '' $words[-1])
    switch "$answer[1]"
        case ':files'
            for path in (__fish_complete_path "$begun")
                printf '%s%s\n' "$lead" $path
            end
        case ':folders'
            for path in (__fish_complete_directories "$begun" '')
                printf '%s%s\n' "$lead" $path
            end
        case '*'
            printf '%s\n' $answer[2..-1]
    end
end
complete -c wisp -f -a '(__wisp_complete)'
)";

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
    verb->callback([shell] {
        fmt::print("{}", *shell == "bash" ? kBash : *shell == "zsh" ? kZsh : kFish);
    });
}

}  // namespace wisp::cli
