#include "command.hpp"

#include <CLI/CLI.hpp>
#include <optional>

namespace wisp::cli {

Rule in_range(int low, int high) {
    return [=](CLI::Option& option) { option.check(CLI::Range(low, high)); };
}

Rule in_range(std::uint64_t low, std::uint64_t high) {
    return [=](CLI::Option& option) { option.check(CLI::Range(low, high)); };
}

Rule one_of(std::vector<std::string> words) {
    return [words = std::move(words)](CLI::Option& option) { option.check(CLI::IsMember(words)); };
}

Rule not_negative() {
    return [](CLI::Option& option) { option.check(CLI::NonNegativeNumber); };
}

Rule positive() {
    return [](CLI::Option& option) { option.check(CLI::PositiveNumber); };
}

Rule existing_folder() {
    return [](CLI::Option& option) { option.check(CLI::ExistingDirectory); };
}

Rule output_file() {
    return accepted_by([](const std::string& name) -> std::string {
        if (name == "-")
            return "it cannot go to standard output; name a file (./- for one so called)";
        return name.empty() ? "name a file" : "";
    });
}

Rule accepted_by(std::function<std::string(const std::string&)> why_not, std::string shown_as) {
    return [=](CLI::Option& option) { option.check(CLI::Validator(why_not, shown_as)); };
}

Option* Option::required(bool value) {
    option_->required(value);
    return this;
}

Option* Option::type_name(const std::string& name) {
    option_->type_name(name);
    return this;
}

Option* Option::default_str(const std::string& text) {
    option_->default_str(text);
    return this;
}

Option* Option::capture_default_str() {
    option_->capture_default_str();
    return this;
}

Option* Option::allow_extra_args(bool value) {
    option_->allow_extra_args(value);
    return this;
}

Option* Option::needs(Option* other) {
    option_->needs(other->option_);
    return this;
}

Option* Option::excludes(Option* other) {
    option_->excludes(other->option_);
    return this;
}

Option* Option::envname(const std::string& name) {
    option_->envname(name);
    return this;
}

Option* Option::each(const std::function<void(std::string)>& seen) {
    option_->each(seen);
    return this;
}

Option* Option::check(const Rule& rule) {
    rule(*option_);
    return this;
}

Option* Option::takes_size_units() {
    option_->transform(CLI::AsSizeValue(true));
    return this;
}

Option* Command::keep(CLI::Option& option) {
    return options_.emplace_back(std::make_unique<Option>(option)).get();
}

Command* Command::keep(CLI::App& parser) {
    return below_.emplace_back(std::make_unique<Command>(parser)).get();
}

Command* Command::add_subcommand(const std::string& name, const std::string& help) {
    return keep(*parser_->add_subcommand(name, help));
}

Command* Command::add_option_group(const std::string& name) {
    return keep(*static_cast<CLI::App*>(parser_->add_option_group(name)));
}

template <class T>
Option* Command::add_option(const std::string& name, T& into, const std::string& help) {
    return keep(*parser_->add_option(name, into, help));
}

template Option* Command::add_option(const std::string&, std::string&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<std::string>&,
                                     const std::string&);
template Option* Command::add_option(const std::string&, int&, const std::string&);
template Option* Command::add_option(const std::string&, unsigned&, const std::string&);
template Option* Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option* Command::add_option(const std::string&, std::optional<std::uint64_t>&,
                                     const std::string&);

Option* Command::add_option_function(const std::string& name,
                                     const std::function<void(const std::string&)>& take,
                                     const std::string& help) {
    return keep(*parser_->add_option_function<std::string>(name, take, help));
}

Option* Command::add_flag(const std::string& name, bool& into, const std::string& help) {
    return keep(*parser_->add_flag(name, into, help));
}

void Command::hide() {
    parser_->group("");
}

void Command::footer(const std::string& text) {
    parser_->footer(text);
}

void Command::callback(std::function<void()> run) {
    parser_->callback(std::move(run));
}

void Command::require_subcommand(int count) {
    parser_->require_subcommand(count);
}

void Command::require_option(int count) {
    parser_->require_option(count);
}

std::string Command::name() const {
    return parser_->get_name();
}

std::size_t Command::count(const std::string& option) const {
    return parser_->count(option);
}

void refuse_usage(const std::string& option, const std::string& why) {
    throw CLI::ValidationError(option, why);
}

void demand_usage(const std::string& missing) {
    throw CLI::RequiredError(missing);
}

}  // namespace wisp::cli
