#include "candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "parser_words.hpp"

namespace wisp::cli {
namespace {

using Kind = Candidates::Kind;

/// Values that are no files, by the name of their type.
const std::set<std::string> kFreeValues = {"UINT", "INT",  "FLOAT", "N",       "N|auto",  "BYTES",
                                           "ID",   "NAME", "URL",   "ADDRESS", "DURATION"};
const std::set<std::string> kFolderValues = {"DIR", "FOLDER", "RUN[@STEP]"};
/// Arguments without a type of their own whose values are folders; a run may be one.
const std::set<std::string> kFolderNames = {"run", "url", "target", "folder"};

/// bash takes "--codec=swift" and "s3://bucket" apart at '=' and ':'.
std::vector<std::string> joined_again(const std::vector<std::string>& words, bool& was_apart) {
    std::vector<std::string> joined;
    bool glue = false;
    for (const std::string& word : words) {
        const bool mark = word == "=" || word == ":";
        was_apart = glue || mark;
        if (was_apart && !joined.empty()) {
            joined.back() += word;
        } else {
            joined.push_back(word);
        }
        glue = mark;
    }
    return joined;
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
    std::vector<const CLI::Option*> all = app.get_options();
    for (const CLI::App* group : apps_below(app)) {
        if (!is_group(*group)) continue;
        const auto more = options_of(*group);
        all.insert(all.end(), more.begin(), more.end());
    }
    return all;
}

bool takes_value(const CLI::Option& option) {
    return option.get_items_expected_max() > 0;
}

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
    for (const CLI::Option* option : options_of(app)) {
        if (option->check_name(name)) return option;
    }
    return nullptr;
}

/// Those that a value is held against: "TEXT:{compact,swift}".
std::vector<std::string> words_of(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const std::size_t open = type.find('{');
    const std::size_t close = type.find('}', open);
    std::vector<std::string> words;
    if (open == std::string::npos || close == std::string::npos) return words;
    std::string word;
    for (std::size_t i = open + 1; i <= close; ++i) {
        if (type[i] != ',' && type[i] != '}') {
            word += type[i];
        } else if (!word.empty()) {
            words.push_back(std::exchange(word, ""));
        }
    }
    return words;
}

class Answer {
  public:
    explicit Answer(std::string typed) : typed_(std::move(typed)) {}

    void offer(const std::string& word, const std::string& help) {
        if (word.starts_with(typed_))
            found_.words.push_back({word, help.substr(0, help.find('\n'))});
    }

    /// `lead` stands before each value on the line already.
    void offer_values(const CLI::Option& option, const std::string& lead, bool shows_lead) {
        const std::string type = option.get_type_name().substr(0, option.get_type_name().find(':'));
        const auto words = type == "N|auto" ? std::vector<std::string>{"auto"} : words_of(option);
        const std::string begun = typed_.substr(lead.size());
        for (const std::string& word : words) {
            if (word.starts_with(begun))
                found_.words.push_back({(shows_lead ? lead : "") + word, ""});
        }
        if (!words.empty()) return;
        if (kFreeValues.contains(type)) return;
        const bool folders = kFolderValues.contains(type) ||
                             (option.get_positional() && kFolderNames.contains(option.get_name()));
        found_.kind = folders ? Kind::kFolders : Kind::kFiles;
    }

    void offer_verbs(const CLI::App& app) {
        for (const CLI::App* verb : verbs_below(app)) {
            offer(verb->get_name(), verb->get_description());
        }
    }

    void offer_options(const CLI::App& app, const std::set<const CLI::Option*>& given) {
        for (const CLI::Option* option : options_of(app)) {
            // Once is enough, but for those that can be repeated.
            if (given.contains(option) && option->get_expected_max() <= 1) continue;
            for (const std::string& name : option->get_lnames()) {
                offer("--" + name, option->get_description());
            }
            for (const std::string& name : option->get_snames()) {
                offer("-" + name, option->get_description());
            }
        }
    }

    Candidates take() { return std::move(found_); }

  private:
    std::string typed_;
    Candidates found_;
};

/// What the words before the one being typed come to.
struct Typed {
    const CLI::App* verb = nullptr;
    const CLI::Option* waiting = nullptr;  // for its value
    std::set<const CLI::Option*> given;
    std::size_t arguments = 0;
    bool only_arguments = false;  // after "--"
    bool asks_help = false;
};

Typed read_words(const CLI::App& parser, const std::vector<std::string>& words) {
    Typed typed;
    typed.verb = &parser;
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
        const std::string& word = words[i];
        if (typed.waiting != nullptr) {
            typed.waiting = nullptr;
        } else if (!typed.only_arguments && word == "--") {
            typed.only_arguments = true;
        } else if (!typed.only_arguments && word.starts_with("-")) {
            const std::size_t equals = word.find('=');
            const CLI::Option* const option = find_option(*typed.verb, word.substr(0, equals));
            typed.given.insert(option);
            const bool complete = option == nullptr || equals != std::string::npos;
            if (!complete && takes_value(*option)) typed.waiting = option;
        } else if (typed.verb == &parser && word == "help") {
            typed.asks_help = true;
        } else if (const CLI::App* below = nullptr;
                   typed.arguments == 0 && !verbs_below(*typed.verb).empty()) {
            for (const CLI::App* verb : verbs_below(*typed.verb)) {
                if (verb->get_name() == word) below = verb;
            }
            if (below != nullptr) typed.verb = below;
            if (below == nullptr) ++typed.arguments;
        } else {
            ++typed.arguments;
        }
    }
    return typed;
}

/// The argument that comes after so many; the last may take any number.
const CLI::Option* argument_after(const CLI::App& verb, std::size_t count) {
    const CLI::Option* last = nullptr;
    for (const CLI::Option* option : options_of(verb)) {
        if (!option->get_positional()) continue;
        last = option;
        const auto most = static_cast<std::size_t>(std::max(option->get_items_expected_max(), 1));
        if (count < most) return option;
        count -= most;
    }
    return last != nullptr && last->get_items_expected_max() > 1 ? last : nullptr;
}

}  // namespace

Candidates candidates_for(const CLI::App& parser, std::vector<std::string> words) {
    bool was_apart = false;
    words = joined_again(words, was_apart);
    if (words.empty()) words.emplace_back();
    const std::string& last = words.back();
    const Typed typed = read_words(parser, words);
    Answer answer(last);
    const std::size_t equals = last.find('=');
    if (typed.waiting != nullptr) {
        answer.offer_values(*typed.waiting, "", false);
    } else if (!typed.only_arguments && last.starts_with("--") && equals != std::string::npos) {
        const CLI::Option* const option = find_option(*typed.verb, last.substr(0, equals));
        if (option != nullptr) {
            answer.offer_values(*option, last.substr(0, equals + 1), !was_apart);
        }
    } else if (!typed.only_arguments && last.starts_with("-")) {
        answer.offer_options(*typed.verb, typed.given);
    } else if (typed.arguments == 0 && !verbs_below(*typed.verb).empty()) {
        answer.offer_verbs(*typed.verb);
        if (typed.verb == &parser && !typed.asks_help) answer.offer("help", "Explain a verb");
    } else if (typed.asks_help) {
        return {};
    } else if (const CLI::Option* const next = argument_after(*typed.verb, typed.arguments)) {
        answer.offer_values(*next, "", false);
    }
    return answer.take();
}

void print_candidates(const Candidates& candidates) {
    switch (candidates.kind) {
        case Kind::kWords: fmt::print(":words\n"); break;
        case Kind::kFiles: fmt::print(":files\n"); break;
        case Kind::kFolders: fmt::print(":folders\n"); break;
    }
    for (const Candidates::Word& word : candidates.words) {
        fmt::print("{}\t{}\n", word.text, word.help);
    }
}

}  // namespace wisp::cli
