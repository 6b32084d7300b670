// Manual pages, read off the parser like completion, so that they say what --help says.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "verbs.hpp"
#include "version.hpp"

namespace wisp::cli {
namespace {

/// As roff reads it: a line must not begin with a control character, and a bare '-' is a hyphen
/// that nobody can paste into a shell.
std::string roff(const std::string& text) {
    std::string out;
    bool at_start = true;
    for (const char c : text) {
        if (at_start && (c == '.' || c == '\'')) out += "\\&";
        if (c == '\\') {
            out += "\\e";
        } else if (c == '-') {
            out += "\\-";
        } else {
            out += c;
        }
        at_start = c == '\n';
    }
    return out;
}

bool is_option_group(const CLI::App& app) {
    return app.get_name().empty();
}

std::vector<const CLI::App*> shown_below(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App* below) {
        return is_option_group(*below) || !below->get_group().empty();
    });
}

std::string names_of(const CLI::Option& option) {
    std::vector<std::string> names;
    for (const std::string& name : option.get_snames()) names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
    if (names.empty()) names.push_back(option.get_single_name());
    return fmt::format("{}", fmt::join(names, ", "));
}

std::string value_of(const CLI::Option& option) {
    if (option.get_type_size() == 0 || option.get_type_name().empty()) return {};
    std::string value = " \\fI" + roff(option.get_type_name()) + "\\fR";
    if (!option.get_default_str().empty()) value += "=" + roff(option.get_default_str());
    return value;
}

void write_options(std::ostream& page, const CLI::App& app, bool positional) {
    for (const CLI::Option* option : app.get_options()) {
        if (option->get_positional() != positional || option->get_group().empty()) continue;
        page << ".TP\n\\fB" << roff(names_of(*option)) << "\\fR" << value_of(*option) << "\n"
             << roff(option->get_description()) << "\n";
    }
    for (const CLI::App* group : shown_below(app)) {
        if (is_option_group(*group)) write_options(page, *group, positional);
    }
}

void write_synopsis(std::ostream& page, const CLI::App& app, const std::string& name) {
    page << ".B " << roff(name) << "\n";
    std::string words = "[OPTIONS]";
    for (const CLI::Option* option : app.get_options()) {
        if (!option->get_positional()) continue;
        const std::string word = option->get_single_name();
        words += option->get_required() ? " " + word : " [" + word + "]";
    }
    for (const CLI::App* below : shown_below(app)) {
        if (is_option_group(*below)) continue;
        words += " SUBCOMMAND";
        break;
    }
    page << ".I " << roff(words) << "\n";
}

/// What follows the options in --help, as it is laid out there.
void write_footer(std::ostream& page, const CLI::App& app) {
    std::string text = app.get_footer();
    if (text.empty()) return;
    std::string title = "NOTES";
    if (constexpr std::string_view kExamples = "Examples:\n"; text.starts_with(kExamples)) {
        text.erase(0, kExamples.size());
        title = "EXAMPLES";
    }
    page << ".SH " << title << "\n.nf\n" << roff(text) << "\n.fi\n";
}

void write_head(std::ostream& page, const std::string& name, const std::string& help) {
    page << ".TH " << roff(name) << " 1 \"\" \"wisp " << kVersion << "\" \"User Commands\"\n"
         << ".SH NAME\n"
         << roff(name) << " \\- " << roff(help) << "\n.SH SYNOPSIS\n";
}

std::string verb_page(const CLI::App& verb) {
    std::ostringstream page;
    write_head(page, "wisp-" + verb.get_name(), verb.get_description());
    write_synopsis(page, verb, "wisp " + verb.get_name());
    page << ".SH OPTIONS\n";
    write_options(page, verb, true);
    write_options(page, verb, false);
    write_footer(page, verb);
    for (const CLI::App* part : shown_below(verb)) {
        if (is_option_group(*part)) continue;
        const std::string name = "wisp " + verb.get_name() + " " + part->get_name();
        page << ".SH \"" << roff(name) << "\"\n" << roff(part->get_description()) << ".\n.PP\n";
        write_synopsis(page, *part, name);
        write_options(page, *part, true);
        write_options(page, *part, false);
    }
    page << ".SH SEE ALSO\n.BR wisp (1)\n";
    return page.str();
}

std::string program_page(const CLI::App& program) {
    std::ostringstream page;
    write_head(page, "wisp", "bit-exact deltas between model checkpoints");
    write_synopsis(page, program, "wisp");
    page << ".SH DESCRIPTION\n" << roff(program.get_description()) << "\n.SH VERBS\n";
    for (const CLI::App* verb : shown_below(program)) {
        page << ".TP\n.BR wisp\\-" << roff(verb->get_name()) << " (1)\n"
             << roff(verb->get_description()) << "\n";
    }
    page << ".SH OPTIONS\n";
    write_options(page, program, false);
    write_footer(page, program);
    return page.str();
}

void write_page(const std::filesystem::path& folder, const std::string& name,
                const std::string& text) {
    const std::filesystem::path path = folder / (name + ".1");
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) refuse_usage("folder", "cannot write " + path.string());
}

}  // namespace

void add_manual(Command& app, Outcome&) {
    auto* verb = app.add_subcommand("manual", "Write the manual pages into a folder");
    verb->hide();
    auto folder = std::make_shared<std::string>();
    verb->add_option("folder", *folder, "Where to")->required()->check(existing_folder());
    verb->callback([folder, &app] {
        write_page(*folder, "wisp", program_page(app.parser()));
        for (const CLI::App* below : shown_below(app.parser())) {
            write_page(*folder, "wisp-" + below->get_name(), verb_page(*below));
        }
    });
}

}  // namespace wisp::cli
