// Servers that generate, kept at the newest step: tells vLLM and SGLang over HTTP what to serve.
//
// No weights pass through here: a server is told a run and a step, and fetches, proves and applies
// the step itself (doc/engines.md). Each server has a thread of its own, so one that is dead, slow
// or wrong never holds the others; one that comes back is set up again and brought to the newest
// step in one move. All calls may be made from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {

enum class EngineKind { kVllm, kSglang };
/// "vllm", "sglang".
std::string_view name_of(EngineKind kind);

/// What becomes of requests under way while the weights change.
enum class EnginePause {
    kKeep,   // they wait, and go on with the new weights
    kWait,   // they are finished first
    kAbort,  // they end
};

struct EngineServer {
    std::string url;  // http://host:port, https://host/prefix
    EngineKind kind = EngineKind::kVllm;
    /// For servers started with --api-key: a bearer token, sent to this address alone.
    std::string api_key;
};

struct EngineTarget {
    std::uint64_t step = 0;
    /// Anything that differs between two states of one step, such as a digest: after a rewind a
    /// step may be published anew. May be empty.
    std::string state;
};

/// What one server answered, or did not.
struct EngineReport {
    std::string url;
    EngineKind kind = EngineKind::kVllm;
    std::optional<std::uint64_t> target;  // absent in look()
    std::optional<std::uint64_t> served;  // what it serves now, as far as it said
    bool moved = false;                   // to the target, by this attempt
    bool initialized = false;             // it was new, or came back, and was set up first
    double pause_seconds = 0;             // how long it did not generate
    double seconds = 0;                   // the whole attempt
    std::vector<std::pair<std::string, double>> phases;  // seconds of each, as it told
    std::vector<std::string> faults;                     // what it worked around
    std::optional<Error> error;

    bool ok() const { return !error; }
};

struct EngineOptions {
    std::vector<EngineServer> servers;
    /// The run as the servers see it. A path is made absolute, and must lead to it everywhere.
    std::string run;
    /// Public keys, as text, that servers are to trust; empty: unsigned runs are accepted.
    std::vector<std::string> trust;
    /// Servers are to refuse certificates with a lower serial, and a run of another identity than
    /// this; empty: whichever is at the address.
    std::uint64_t min_serial = 0;
    std::string run_id;
    EnginePause pause = EnginePause::kKeep;
    Milliseconds connect_timeout{5'000};
    Milliseconds answer_timeout{15'000};   // of everything that needs no work
    Milliseconds update_timeout{300'000};  // of setting up, and of staging with the switch
    /// How often a server is looked after between two targets, whether it came back or lost its
    /// weights; 0: never.
    Milliseconds watch{5'000};
    /// What SGLang was given as --custom-weight-loader.
    std::string sglang_loader = "wisp.sglang.load_delta";
    /// Told of every move, every failure and every recovery, once; by threads of the driver, one
    /// at a time. Must not call the driver.
    std::function<void(const EngineReport&)> on_report;
    /// Ends the exchanges of all servers early: wisp/control.hpp.
    std::stop_token stop = {};
};

class EngineDriver {
  public:
    /// kInvalid when an address is malformed or listed twice. Contacts no server yet.
    static Result<EngineDriver> open(const EngineOptions& options);
    EngineDriver(EngineDriver&&) noexcept;
    EngineDriver& operator=(EngineDriver&&) noexcept;
    /// Ends what is under way; a server that was paused is resumed first.
    ~EngineDriver();

    /// All servers are to serve this from now on. Returns at once.
    void aim(const EngineTarget& target);
    /// aim(), and waits until each server serves it or has failed; reports are in the order of the
    /// servers. One that was away before is waited for a second at most and retried in the
    /// background. If the caller is stopped, the rest is kUnavailable and goes on there too.
    std::vector<EngineReport> update(const EngineTarget& target);
    /// Asks every server where it is, and moves none.
    std::vector<EngineReport> look() const;
    /// The last report of each server; without a target when it was not tried yet.
    std::vector<EngineReport> latest() const;

  private:
    struct State;
    explicit EngineDriver(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace wisp
