#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <system_error>

#include "candidates.hpp"
#include "live_line.hpp"
#include "process_stop.hpp"
#include "usage_error.hpp"
#include "verbs.hpp"
#include "version.hpp"
#include "wisp/control.hpp"

namespace {

constexpr const char* kFooter = R"(Examples:
  wisp diff step_41.safetensors step_42.safetensors -o delta_42.safetensors
  wisp apply step_41.safetensors delta_42.safetensors -o step_42.safetensors
  wisp publish s3://weights/qwen-rl step_42.safetensors
  wisp follow s3://weights/qwen-rl --into /models/policy

A checkpoint is a .safetensors file or a Hugging Face folder with its index; a run is
s3://bucket/prefix, hf://buckets/namespace/name/prefix, file:///path or a folder.
'wisp help VERB' has more. Exit codes: 0 ok, 1 error, 2 usage, 5 try again later, 10 no such run,
11 locked or taken over, 12 permissions or trust, 13 damaged data, 14 wrong base or another run,
15 history is gone, 16 store lacks a capability, 17 disk full, 18 format too new, 130 interrupted.
WISP_KERNEL=NAME forces a vector kernel, 'reference' the plain one.)";

/// "wisp help publish" is "wisp publish --help"; returns the words as they are meant.
std::vector<std::string> without_help_verb(int argc, char** argv) {
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (words.empty() || words.front() != "help") return words;
    words.erase(words.begin());
    words.emplace_back("--help");
    return words;
}

std::string version_text() {
    const std::string commit = wisp::cli::kCommit;
    return fmt::format("wisp {}{}", wisp::cli::kVersion, commit.empty() ? "" : " " + commit);
}

int run(int argc, char** argv) {
    CLI::App parser("wisp: weights in sparse patches. Bit-exact deltas between model checkpoints.");
    parser.name("wisp");
    parser.footer(kFooter);
    parser.set_version_flag("--version", version_text());
    parser.require_subcommand(1);
    wisp::cli::Command app(parser);
    wisp::cli::Outcome outcome;
    wisp::cli::add_diff(app, outcome);
    wisp::cli::add_apply(app, outcome);
    wisp::cli::add_merge(app, outcome);
    wisp::cli::add_inspect(app, outcome);
    wisp::cli::add_verify(app, outcome);
    wisp::cli::add_init(app, outcome);
    wisp::cli::add_publish(app, outcome);
    wisp::cli::add_follow(app, outcome);
    wisp::cli::add_pull(app, outcome);
    wisp::cli::add_read(app, outcome);
    wisp::cli::add_log(app, outcome);
    wisp::cli::add_status(app, outcome);
    wisp::cli::add_dashboard(app, outcome);
    wisp::cli::add_report(app, outcome);
    wisp::cli::add_compact(app, outcome);
    wisp::cli::add_retain(app, outcome);
    wisp::cli::add_scrub(app, outcome);
    wisp::cli::add_export(app, outcome);
    wisp::cli::add_key(app, outcome);
    wisp::cli::add_doctor(app, outcome);
    wisp::cli::add_completion(app, outcome);
    wisp::cli::add_manual(app, outcome);
    if (argc > 1 && std::string_view(argv[1]) == wisp::cli::kCompleteVerb) {
        wisp::cli::print_candidates(wisp::cli::candidates_for(parser, {argv + 2, argv + argc}));
        return 0;
    }
    if (const auto checked = wisp::check_kernel(); !checked) {
        fmt::print(stderr, "wisp: {}\n", checked.error().text);
        return 2;
    }
    try {
        // From a vector CLI11 takes the words from the back.
        std::vector<std::string> words = without_help_verb(argc, argv);
        std::ranges::reverse(words);
        parser.parse(words);
    } catch (const CLI::ParseError& error) {
        return wisp::cli::tell_usage_error(
            parser, error, {argv + 1, static_cast<std::size_t>(std::max(argc - 1, 0))});
    } catch (const std::bad_alloc&) {
        fmt::print(stderr, "wisp: out of memory; use fewer --threads or a larger machine\n");
        return 1;
    } catch (const std::system_error& error) {
        // fmt, of a full disk: main() says so.
        if (std::ferror(stdout) != 0) return 1;
        fmt::print(stderr, "wisp: {}; please report this as a bug\n", error.what());
        return 1;
    } catch (const std::exception& error) {
        fmt::print(stderr, "wisp: {}; please report this as a bug\n", error.what());
        return 1;
    }
    if (outcome.exit_code != 0 && wisp::cli::interrupted()) return 128 + wisp::cli::signal_met();
    return outcome.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
    wisp::cli::watch_signals();
    const wisp::StopScope scope(wisp::cli::process_stop());
    // A file size limit is met as an error of write(2), like a full disk.
    std::signal(SIGXFSZ, SIG_IGN);
    const int code = run(argc, argv);
    wisp::cli::clear_live_line();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        fmt::print(stderr, "wisp: cannot write the result to standard output\n");
        return code == 0 ? 1 : code;
    }
    return code;
}
