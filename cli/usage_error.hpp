// A command line that cannot be read: said in one line, with the word that was probably meant, and
// as JSON where JSON was asked for.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace wisp::cli {

/// The word of `known` that is nearest to `word`; empty when none is near.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

/// Help and versions are printed. Returns the exit code.
int tell_usage_error(const CLI::App& parser, const CLI::ParseError& error,
                     std::span<char* const> words);

}  // namespace wisp::cli
