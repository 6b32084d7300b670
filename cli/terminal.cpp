#include "terminal.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <stdio_ext.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <vector>

#include "process_stop.hpp"

namespace wisp::cli {
namespace {

std::string_view setting(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

bool shows_colours(int stream) {
    return setting("NO_COLOR").empty() && setting("TERM") != "dumb" && ::isatty(stream) == 1;
}

/// Decided once: a pager takes the terminal's place.
bool stdout_shows_colours() {
    static const bool shows = shows_colours(STDOUT_FILENO);
    return shows;
}

std::string in_colour(Colour colour, const std::string& text) {
    const char* code = "";
    switch (colour) {
        case Colour::kBold: code = "1"; break;
        case Colour::kDim: code = "2"; break;
        case Colour::kRed: code = "31"; break;
        case Colour::kGreen: code = "32"; break;
        case Colour::kYellow: code = "33"; break;
    }
    return "\033[" + std::string(code) + "m" + text + "\033[0m";
}

bool is_installed(const std::string& program) {
    std::string_view path = setting("PATH");
    while (!path.empty()) {
        const std::size_t end = path.find(':');
        const std::string folder(path.substr(0, end));
        if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
        if (end == std::string_view::npos) break;
        path.remove_prefix(end + 1);
    }
    return false;
}

/// Empty: none.
std::string pager_command() {
    for (const char* name : {"WISP_PAGER", "PAGER"}) {
        const char* const value = std::getenv(name);
        if (value == nullptr) continue;
        return std::string_view(value) == "cat" ? "" : value;
    }
    return is_installed("less") ? "less" : "";
}

/// As this process has it, and as less is to behave unless told otherwise: leave at once when all
/// fits, pass colours on, and leave the text on the screen.
std::vector<std::string> pager_environment() {
    std::vector<std::string> all;
    for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
    if (std::getenv("LESS") == nullptr) all.emplace_back("LESS=FRX");
    if (std::getenv("LV") == nullptr) all.emplace_back("LV=-c");
    return all;
}

/// -1 when it does not start.
pid_t start_pager(const std::string& command, int reads) {
    std::vector<std::string> environment = pager_environment();
    std::vector<char*> pointers;
    for (std::string& entry : environment) pointers.push_back(entry.data());
    pointers.push_back(nullptr);
    std::string shell = "sh";
    std::string option = "-c";
    std::string words = command;
    char* const arguments[] = {shell.data(), option.data(), words.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, reads, STDIN_FILENO);
    // This process waits for signals on a thread; its child is to be ended by them.
    posix_spawnattr_setsigmask(&attributes, &first_signal_mask());
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t child = -1;
    const int problem =
        ::posix_spawn(&child, "/bin/sh", &actions, &attributes, arguments, pointers.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return problem == 0 ? child : -1;
}

/// While it stands, what is printed goes to a pager, where there is one.
class Pager {
  public:
    explicit Pager(const Common& common);
    Pager(const Pager&) = delete;
    Pager& operator=(const Pager&) = delete;
    /// Waits until the reader has seen enough.
    ~Pager();
    bool was_left() const { return reader_ > 0 && std::ferror(stdout) != 0; }

  private:
    pid_t reader_ = -1;
    int terminal_ = -1;  // what stdout was
};

Pager::Pager(const Common& common) {
    if (common.json || common.quiet || ::isatty(STDOUT_FILENO) != 1) return;
    if (setting("TERM") == "dumb") return;
    (void)stdout_shows_colours();
    const std::string command = pager_command();
    int ends[2] = {-1, -1};
    if (command.empty() || ::pipe2(ends, O_CLOEXEC) != 0) return;
    reader_ = start_pager(command, ends[0]);
    ::close(ends[0]);
    if (reader_ > 0) {
        std::fflush(stdout);
        terminal_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
        ::dup2(ends[1], STDOUT_FILENO);
        // Who has seen enough may leave in the middle.
        std::signal(SIGPIPE, SIG_IGN);
        // less takes Ctrl-C for itself; ending before it would leave two to read the keys.
        leave_interrupts_to_child(true);
    }
    ::close(ends[1]);
}

Pager::~Pager() {
    if (reader_ <= 0) return;
    std::fflush(stdout);
    // What nobody reads any more would come out at the terminal.
    ::__fpurge(stdout);
    std::clearerr(stdout);
    ::dup2(terminal_, STDOUT_FILENO);
    ::close(terminal_);
    while (::waitpid(reader_, nullptr, 0) < 0 && errno == EINTR) {
    }
    leave_interrupts_to_child(false);
}

}  // namespace

std::string coloured(Colour colour, const std::string& text) {
    return stdout_shows_colours() ? in_colour(colour, text) : text;
}

std::string coloured_on_stderr(Colour colour, const std::string& text) {
    static const bool shows = shows_colours(STDERR_FILENO);
    return shows ? in_colour(colour, text) : text;
}

void show_paged(const Common& common, const std::function<void()>& print) {
    const Pager pager(common);
    try {
        print();
    } catch (const std::system_error&) {
        // From fmt, when stdout takes no more: the reader has left in the middle.
        if (!pager.was_left()) throw;
    }
}

}  // namespace wisp::cli
