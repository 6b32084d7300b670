#include <fmt/format.h>

#include <csignal>
#include <exception>

#include "verbs.hpp"

namespace {

constexpr const char* kFooter = R"(Examples:
  wisp diff step_41.safetensors step_42.safetensors -o delta_42.safetensors
  wisp apply step_41.safetensors delta_42.safetensors -o step_42.safetensors
  wisp inspect delta_42.safetensors

A checkpoint is a .safetensors file or a Hugging Face folder with its index.
'wisp VERB --help' has more. Exit codes: 0 ok, 1 error, 2 usage, 5 try again later, 11 locked,
12 permissions, 13 damaged data, 14 wrong base, 17 disk full, 18 format too new, 130 interrupted.)";

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("wisp: weights in sparse patches. Bit-exact deltas between model checkpoints.");
    app.name("wisp");
    app.footer(kFooter);
    app.set_version_flag("--version", std::string("wisp ") + WISP_VERSION);
    app.require_subcommand(1);
    wisp::cli::Outcome outcome;
    wisp::cli::add_diff(app, outcome);
    wisp::cli::add_apply(app, outcome);
    wisp::cli::add_merge(app, outcome);
    wisp::cli::add_inspect(app, outcome);
    wisp::cli::add_verify(app, outcome);
    wisp::cli::add_completion(app, outcome);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    } catch (const std::bad_alloc&) {
        fmt::print(stderr, "wisp: out of memory; use fewer --threads or a larger machine\n");
        return 1;
    } catch (const std::exception& error) {
        fmt::print(stderr, "wisp: {}; please report this as a bug\n", error.what());
        return 1;
    }
    return outcome.exit_code;
}
