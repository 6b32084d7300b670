// What one server is told, in the order its engine wants it.
//
// look() may be called from any thread; bring() from one at a time. Neither tries again: the code
// that calls does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/server_call.hpp"
#include "wisp/engine_driver.hpp"

namespace wisp {

/// What all servers of a driver are told alike.
struct SessionSettings {
    std::string run;
    std::vector<std::string> trust;
    EnginePause pause = EnginePause::kKeep;
    Milliseconds answer_timeout{0};
    Milliseconds update_timeout{0};
    std::string sglang_loader;
    std::uint64_t min_serial = 0;
    std::string run_id;
};

class ServerSession {
  public:
    virtual ~ServerSession() = default;

    /// Fills in what the server serves.
    virtual Result<void> look(EngineReport& report) const = 0;
    /// Sets the server up if it is not, and brings it to the target if it is elsewhere.
    virtual Result<void> bring(const EngineTarget& target, EngineReport& report) = 0;
};

std::unique_ptr<ServerSession> make_vllm_session(ServerCall server, SessionSettings settings);
std::unique_ptr<ServerSession> make_sglang_session(ServerCall server, SessionSettings settings);

/// Remembers which state of a step a server was brought to: a step that is published anew has to be
/// taken anew, although the server says that it serves that step.
class Reached {
  public:
    bool holds(const EngineTarget& target) const {
        if (target.state.empty()) return true;
        // Who moved the server before us may have moved it to another state of the same step.
        if (!target_) return false;
        const bool other_state = target_->step == target.step && !target_->state.empty() &&
                                 target_->state != target.state;
        return !other_state;
    }
    void set(const EngineTarget& target) { target_ = target; }

  private:
    std::optional<EngineTarget> target_;
};

/// "keep", "wait", "abort".
std::string_view name_of(EnginePause pause);
/// Whether two addresses name one run, as far as text can tell.
bool same_run(std::string_view one, std::string_view other);
/// {"run", "trust", "mode": "push"}, and "min_serial" and "run_id" where they are set.
nlohmann::json init_info_of(const SessionSettings& settings);
/// A step as engines write versions; nothing when it is another text.
std::optional<std::uint64_t> step_of_version(const nlohmann::json& version);
/// A duration; nothing when it is negative, or longer than any.
std::optional<double> seconds_of(const nlohmann::json& value);
/// Durations of an object, by name, and the texts of an array; what else is there is passed over.
std::vector<std::pair<std::string, double>> seconds_in(const nlohmann::json& object);
std::vector<std::string> texts_in(const nlohmann::json& array);

/// What kind of server this is, to say what to do about a route that is not there.
Error wrong_server(const ServerCall& server, EngineKind wanted, Milliseconds timeout);
/// The server follows another run: nothing was changed.
Error other_run(const ServerCall& server, const std::string& theirs, const std::string& ours);

}  // namespace wisp
