// Child processes that tell their parent what happens, line by line, and end when it does.
//
// Used from one thread, and while the process has no other: children are forked, not started anew.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "demo_roles.hpp"

namespace wisp::cli {

/// Where a process waits until it is let pass; made before that process.
class Gate {
  public:
    static Result<Gate> make();
    Gate() = default;
    Gate(Gate&& other) noexcept;
    Gate& operator=(Gate&& other) noexcept;
    ~Gate();
    void let_one_pass();
    void wait() const;

  private:
    int inside_ = -1;
    int outside_ = -1;
};

class Crew {
  public:
    Crew() = default;
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    /// Ends whoever is left, at once.
    ~Crew() { dismiss(); }

    /// Forks; the child does `work` and ends, and a failure of it is a failure of the crew.
    Result<void> start(const std::string& name,
                       const std::function<Result<void>(const Tell&)>& work);
    /// Waits for news for at most this long and hands over every line, with the child's name.
    /// kInternal or the child's own failure when one has failed.
    Result<void> listen(
        int milliseconds,
        const std::function<void(const std::string&, nlohmann::ordered_json)>& hear);
    /// Children that have not ended yet.
    std::size_t at_work() const;
    void dismiss();

  private:
    struct Member {
        std::string name;
        pid_t process = -1;
        int lines = -1;
        std::string rest;  // of a line that is not complete
    };
    using Hear = std::function<void(const std::string&, nlohmann::ordered_json)>;
    static Result<void> take_lines(Member& member, const Hear& hear);
    static Result<void> part_with(Member& member);
    std::vector<Member> members_;
};

}  // namespace wisp::cli
