#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>

#include "duration.hpp"
#include "process_stop.hpp"
#include "verbs.hpp"

namespace wisp::cli {
namespace {

struct ReadArguments {
    Common common;
    std::string folder;
    std::vector<std::string> command;
    Milliseconds timeout{300'000};
};

constexpr int kNotFoundByShells = 127;
constexpr int kNotStartedByShells = 126;

/// "{}" stands for the folder, as in find(1).
void put_folder(std::vector<std::string>& words, const std::string& folder) {
    for (std::string& word : words) {
        for (std::size_t at = word.find("{}"); at != std::string::npos;
             at = word.find("{}", at + folder.size())) {
            word.replace(at, 2, folder);
        }
    }
}

/// Becomes the command, which holds the lock until it ends, whatever becomes of wisp. Returns only
/// when it cannot be started.
int become(const ReadArguments& arguments, const FolderReading& reading) {
    std::vector<std::string> words = arguments.command;
    put_folder(words, reading.folder().string());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::setenv("WISP_DIR", reading.folder().c_str(), 1);
    ::setenv("WISP_STEP", std::to_string(reading.at().step).c_str(), 1);
    ::setenv("WISP_DIGEST", to_text(reading.at().state).c_str(), 1);
    reading.keep_across_exec();
    std::fflush(stdout);
    // What wisp ignores or blocks for itself is not to be ignored or blocked by others.
    std::signal(SIGXFSZ, SIG_DFL);
    ::pthread_sigmask(SIG_SETMASK, &first_signal_mask(), nullptr);
    ::execvp(pointers.front(), pointers.data());
    const int why = errno;
    const std::string text =
        fmt::format("cannot start {}: {}; check the command after '--'",
                    printable(arguments.command.front()), std::generic_category().message(why));
    (void)report_error(arguments.common, "read", {ErrorKind::kInvalid, text});
    return why == ENOENT ? kNotFoundByShells : kNotStartedByShells;
}

int run(const ReadArguments& arguments) {
    const auto reading = FolderReading::begin(arguments.folder, arguments.timeout);
    if (!reading) return report_error(arguments.common, "read", reading.error());
    return become(arguments, *reading);
}

}  // namespace

void add_read(Command& app, Outcome& outcome) {
    auto* verb = app.add_subcommand(
        "read", "Run a command while the folder of a follower stays at one step");
    auto arguments = std::make_shared<ReadArguments>();
    verb->add_option("folder", arguments->folder,
                     "Folder of 'wisp follow', the folder of a step, or the link 'current'")
        ->required();
    verb->add_option("command", arguments->command,
                     "What to run, after '--'; {} in it and WISP_DIR are the folder to read, "
                     "WISP_STEP its step")
        ->required();
    add_duration(*verb, "--timeout", arguments->timeout,
                 "How long to wait for a step that is being written")
        ->default_str("5m");
    add_common(*verb, arguments->common, false);
    verb->footer(R"(Examples:
  wisp read /models/policy -- python evaluate.py /models/policy
  wisp read /models/current -- python evaluate.py {}
The exit code is the command's. The follower waits, or keeps the folder, until the command ends.)");
    verb->callback([arguments, &outcome] { outcome.exit_code = run(*arguments); });
}

}  // namespace wisp::cli
