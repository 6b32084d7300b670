// vLLM's own routes for weights, where those of wisp are not there: pause, start, update, finish,
// resume. They exist when the server runs with VLLM_SERVER_DEV_MODE=1.
#pragma once

#include <optional>

#include "engine/server_session.hpp"

namespace wisp {

class StockUpdate {
  public:
    /// Both must outlive it.
    StockUpdate(const ServerCall& server, const SessionSettings& settings)
        : server_(server), settings_(settings) {}

    Result<void> look(EngineReport& report) const;
    /// Whatever happens in between, the server is resumed.
    Result<void> bring(const EngineTarget& target, bool anew, EngineReport& report);

  private:
    Result<void> set_up(EngineReport& report);
    Result<void> switch_paused(const EngineTarget& target);
    Result<void> start();
    Result<void> step(const std::string& path, const nlohmann::json& body, Milliseconds timeout,
                      std::string_view cure);

    const ServerCall& server_;
    const SessionSettings& settings_;
    bool set_up_ = false;
    std::optional<std::uint64_t> left_at_;  // a server that says otherwise was started anew
};

}  // namespace wisp
