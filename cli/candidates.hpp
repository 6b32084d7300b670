// What may come next on a command line that is being typed, read off the parser: verbs, options,
// and the values of both. The shells ask for it by "wisp __complete WORD…" and do no thinking of
// their own, so that all three offer the same.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace wisp::cli {

inline constexpr const char* kCompleteVerb = "__complete";

struct Candidates {
    enum class Kind { kWords, kFiles, kFolders };
    struct Word {
        std::string text;
        std::string help;
    };
    Kind kind = Kind::kWords;
    std::vector<Word> words;  // of kWords; a shell knows files and folders itself
};

/// `words` are those after the program's name; the last is the one being typed, and may be empty.
Candidates candidates_for(const CLI::App& parser, std::vector<std::string> words);

/// ":words", ":files" or ":folders", then a line for each word, its help behind a tab.
void print_candidates(const Candidates& candidates);

}  // namespace wisp::cli
