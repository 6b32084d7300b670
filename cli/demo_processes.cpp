#include "demo_processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "process_stop.hpp"

namespace wisp::cli {
namespace {

Error system_error_of(const char* what) {
    return {ErrorKind::kUnavailable, fmt::format("cannot {}: {}; end other programs and try again",
                                                 what, std::strerror(errno))};
}

void write_line(int to, const nlohmann::ordered_json& value) {
    const std::string line =
        value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    std::string_view left = line;
    while (!left.empty()) {
        const ssize_t wrote = ::write(to, left.data(), left.size());
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) ::_exit(1);  // nobody listens any more
        left.remove_prefix(static_cast<std::size_t>(wrote));
    }
}

[[noreturn]] void be_child(pid_t parent, int lines,
                           const std::function<Result<void>(const Tell&)>& work) {
    // Nothing survives the parent; and it is the parent that answers Ctrl-C.
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_DFL);
    std::signal(SIGPIPE, SIG_IGN);
    ::pthread_sigmask(SIG_SETMASK, &first_signal_mask(), nullptr);
    Result<void> done;
    try {
        done = work([lines](const nlohmann::ordered_json& value) { write_line(lines, value); });
    } catch (const std::exception& error) {
        done = fail(ErrorKind::kUnavailable,
                    fmt::format("memory ran out ({}); take fewer --layers", error.what()));
    }
    if (!done) {
        write_line(lines, {{"event", "failed"},
                           {"kind", static_cast<int>(done.error().kind)},
                           {"message", done.error().text}});
    }
    ::_exit(done ? 0 : 1);
}

}  // namespace

Result<Gate> Gate::make() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return std::unexpected(system_error_of("make a pipe"));
    Gate gate;
    gate.inside_ = ends[0];
    gate.outside_ = ends[1];
    return gate;
}

Gate::Gate(Gate&& other) noexcept
    : inside_(std::exchange(other.inside_, -1)), outside_(std::exchange(other.outside_, -1)) {}

Gate& Gate::operator=(Gate&& other) noexcept {
    std::swap(inside_, other.inside_);
    std::swap(outside_, other.outside_);
    return *this;
}

Gate::~Gate() {
    if (inside_ >= 0) ::close(inside_);
    if (outside_ >= 0) ::close(outside_);
}

void Gate::let_one_pass() {
    while (::write(outside_, "", 1) < 0 && errno == EINTR) {
    }
}

void Gate::wait() const {
    char byte = 0;
    while (::read(inside_, &byte, 1) < 0 && errno == EINTR) {
    }
}

Result<void> Crew::start(const std::string& name,
                         const std::function<Result<void>(const Tell&)>& work) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return std::unexpected(system_error_of("make a pipe"));
    // What is still to be printed must not be printed twice.
    std::fflush(stdout);
    std::fflush(stderr);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) {
        const Error error = system_error_of("start a process");
        ::close(ends[0]);
        ::close(ends[1]);
        return std::unexpected(error);
    }
    if (child == 0) {
        ::close(ends[0]);
        for (const Member& other : members_) {
            if (other.lines >= 0) ::close(other.lines);
        }
        be_child(parent, ends[1], work);
    }
    ::close(ends[1]);
    members_.push_back({name, child, ends[0], {}});
    return {};
}

Result<void> Crew::take_lines(Member& member, const Hear& hear) {
    char buffer[4096];
    const ssize_t count = ::read(member.lines, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) return {};
    if (count <= 0) return part_with(member);
    member.rest.append(buffer, static_cast<std::size_t>(count));
    for (std::size_t end; (end = member.rest.find('\n')) != std::string::npos;) {
        auto line = nlohmann::ordered_json::parse(member.rest.substr(0, end), nullptr, false);
        member.rest.erase(0, end + 1);
        if (line.is_discarded()) continue;
        if (line["event"] == "failed") {
            return fail(static_cast<ErrorKind>(line["kind"].get<int>()),
                        fmt::format("{}: {}", member.name, line["message"].get<std::string>()));
        }
        hear(member.name, std::move(line));
    }
    return {};
}

Result<void> Crew::part_with(Member& member) {
    ::close(std::exchange(member.lines, -1));
    int status = 0;
    while (::waitpid(member.process, &status, 0) < 0 && errno == EINTR) {
    }
    member.process = -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
        return fail(ErrorKind::kUnavailable,
                    fmt::format("{} was killed, most likely since memory ran out; take fewer "
                                "--layers",
                                member.name));
    }
    return fail(ErrorKind::kInternal,
                fmt::format("{} ended unexpectedly (status {:#x}); please report this as a bug",
                            member.name, status));
}

Result<void> Crew::listen(int milliseconds, const Hear& hear) {
    std::vector<pollfd> watched;
    std::vector<std::size_t> whose;
    for (std::size_t i = 0; i < members_.size(); ++i) {
        if (members_[i].lines < 0) continue;
        watched.push_back({members_[i].lines, POLLIN, 0});
        whose.push_back(i);
    }
    if (::poll(watched.data(), watched.size(), milliseconds) <= 0) return {};
    for (std::size_t i = 0; i < watched.size(); ++i) {
        if (watched[i].revents == 0) continue;
        auto taken = take_lines(members_[whose[i]], hear);
        if (!taken) return taken;
    }
    return {};
}

std::size_t Crew::at_work() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(members_, [](const Member& member) { return member.lines >= 0; }));
}

void Crew::dismiss() {
    for (Member& member : members_) {
        if (member.process < 0) continue;
        ::kill(member.process, SIGKILL);
        while (::waitpid(member.process, nullptr, 0) < 0 && errno == EINTR) {
        }
        member.process = -1;
        ::close(std::exchange(member.lines, -1));
    }
}

}  // namespace wisp::cli
