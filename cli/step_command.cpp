#include "step_command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <vector>

#include "process_stop.hpp"

extern char** environ;  // NOLINT: POSIX wants it declared by its user

namespace wisp::cli {
namespace {

std::vector<std::string> environment_for(const FollowEvent& event,
                                         const std::filesystem::path& folder) {
    constexpr std::string_view kOwn[] = {
        "WISP_STEP=", "WISP_SEQ=", "WISP_EPOCH=", "WISP_DIR=", "WISP_DIGEST="};
    std::vector<std::string> variables;
    for (char** at = environ; *at != nullptr; ++at) {
        const std::string_view variable(*at);
        bool own = false;
        for (const std::string_view name : kOwn) own = own || variable.starts_with(name);
        if (!own) variables.emplace_back(variable);
    }
    variables.push_back(fmt::format("WISP_STEP={}", event.step));
    variables.push_back(fmt::format("WISP_SEQ={}", event.seq));
    variables.push_back(fmt::format("WISP_EPOCH={}", event.epoch));
    variables.push_back(fmt::format("WISP_DIR={}", folder.string()));
    variables.push_back(fmt::format("WISP_DIGEST={}", to_text(event.state)));
    return variables;
}

Error command_error(const std::string& what) {
    return {ErrorKind::kInvalid, fmt::format("the command of --on-step {}", what)};
}

Result<pid_t> spawn(const std::string& command, std::vector<std::string> variables, bool apart) {
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (apart) posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // What wisp ignores or blocks for itself is not to be ignored or blocked by others.
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGXFSZ);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &first_signal_mask());
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    std::string shell = "sh", flag = "-c", text = command;
    char* const words[] = {shell.data(), flag.data(), text.data(), nullptr};
    pid_t child = 0;
    const int failed =
        ::posix_spawn(&child, "/bin/sh", &actions, &attributes, words, environment.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
        return std::unexpected(
            command_error("could not be started: " + std::generic_category().message(failed)));
    }
    return child;
}

}  // namespace

Result<void> run_step_command(const std::string& command, const FollowEvent& event,
                              const std::filesystem::path& folder, bool apart) {
    std::fflush(stdout);
    const auto child = spawn(command, environment_for(event, folder), apart);
    if (!child) return std::unexpected(child.error());
    int status = 0;
    while (::waitpid(*child, &status, 0) < 0) {
        if (errno != EINTR) return std::unexpected(command_error("was lost"));
    }
    if (WIFSIGNALED(status)) {
        return std::unexpected(command_error(
            fmt::format("was ended by signal {} at step {}", WTERMSIG(status), event.step)));
    }
    if (WEXITSTATUS(status) == 0) return {};
    return std::unexpected(
        command_error(fmt::format("exited with {} at step {}", WEXITSTATUS(status), event.step)));
}

}  // namespace wisp::cli
