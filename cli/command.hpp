// The grammar of the command line: verbs, their options, and what a value must be. Names and
// meaning are CLI11's, which stands behind it. Its header alone costs three seconds in every file
// that sees it, so only command.cpp does, and those few that need more than this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace wisp::cli {

/// What a value must be; `Option::check` takes it, and the help shows it.
using Rule = std::function<void(CLI::Option&)>;
/// Of whole numbers; unsigned ones for what does not fit an int.
Rule in_range(int low, int high);
Rule in_range(std::uint64_t low, std::uint64_t high);
Rule one_of(std::vector<std::string> words);
Rule not_negative();
Rule positive();
Rule existing_folder();
/// A name to write to; "-" is refused, since these files are not written front to back.
Rule output_file();
/// `why_not` returns nothing, or what is wrong with the value.
Rule accepted_by(std::function<std::string(const std::string&)> why_not, std::string shown_as = "");

class Option {
  public:
    explicit Option(CLI::Option& option) : option_(&option) {}

    Option* required(bool value = true);
    Option* type_name(const std::string& name);
    Option* default_str(const std::string& text);
    Option* capture_default_str();
    Option* allow_extra_args(bool value);
    Option* needs(Option* other);
    Option* excludes(Option* other);
    Option* envname(const std::string& name);
    Option* each(const std::function<void(std::string)>& seen);
    Option* check(const Rule& rule);
    /// Takes "512MB" for a number; kB, MB and GB are powers of 1000.
    Option* takes_size_units();

  private:
    CLI::Option* option_;
};

/// A verb, a group of options, or the program itself. Owns the options it hands out.
class Command {
  public:
    explicit Command(CLI::App& parser) : parser_(&parser) {}

    Command* add_subcommand(const std::string& name, const std::string& help);
    Command* add_option_group(const std::string& name);
    /// `into` outlives parsing: std::string, a vector of them, unsigned, std::uint64_t, double,
    /// or an optional std::uint64_t.
    template <class T>
    Option* add_option(const std::string& name, T& into, const std::string& help);
    Option* add_option_function(const std::string& name,
                                const std::function<void(const std::string&)>& take,
                                const std::string& help);
    Option* add_flag(const std::string& name, bool& into, const std::string& help);

    /// Left out of help, completion and the manual.
    void hide();
    void footer(const std::string& text);
    void callback(std::function<void()> run);
    void require_subcommand(int count);
    void require_option(int count);
    /// How often an option was given, in the environment too.
    std::size_t count(const std::string& option) const;

    std::string name() const;
    const CLI::App& parser() const { return *parser_; }

  private:
    Option* keep(CLI::Option& option);
    Command* keep(CLI::App& parser);

    CLI::App* parser_;
    std::vector<std::unique_ptr<Option>> options_;
    std::vector<std::unique_ptr<Command>> below_;
};

/// For callbacks: ends as wrong usage, naming the option.
[[noreturn]] void refuse_usage(const std::string& option, const std::string& why);
/// For callbacks: ends as wrong usage, since this is missing.
[[noreturn]] void demand_usage(const std::string& missing);

}  // namespace wisp::cli
