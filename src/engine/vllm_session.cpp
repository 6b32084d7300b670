#include <fmt/format.h>

#include <utility>

#include "base/try.hpp"
#include "engine/server_session.hpp"
#include "engine/stock_update.hpp"
#include "wisp/run_status.hpp"

namespace wisp {
namespace {

std::optional<std::uint64_t> step_in(const nlohmann::json& value) {
    if (!value.is_number_unsigned()) return std::nullopt;
    return value.get<std::uint64_t>();
}

/// A vLLM server with the routes of wisp, or else with vLLM's own.
class VllmSession : public ServerSession {
  public:
    VllmSession(ServerCall server, SessionSettings settings)
        : server_(std::move(server)), settings_(std::move(settings)), stock_(server_, settings_) {}

    Result<void> look(EngineReport& report) const override {
        WISP_ASSIGN(const ServerAnswer status,
                    server_.get("/wisp/status", settings_.answer_timeout));
        if (status.missing()) return stock_.look(report);
        return read_status(status, report);
    }

    Result<void> bring(const EngineTarget& target, EngineReport& report) override {
        WISP_ASSIGN(const ServerAnswer status,
                    server_.get("/wisp/status", settings_.answer_timeout));
        const bool anew = !reached_.holds(target);
        if (status.missing()) {
            WISP_TRY(stock_.bring(target, anew, report));
            reached_.set(target);
            return {};
        }
        WISP_TRY(read_status(status, report));
        const bool initialized = status.field("initialized") == true;
        if (const auto& run = status.field("run"); initialized && run.is_string()) {
            const auto& theirs = run.get_ref<const std::string&>();
            if (!same_run(theirs, settings_.run)) {
                return std::unexpected(other_run(server_, theirs, settings_.run));
            }
        }
        if (!initialized) WISP_TRY(set_up(report));
        if (!initialized || report.served != target.step || anew) WISP_TRY(move(target, report));
        reached_.set(target);
        return {};
    }

  private:
    Result<void> read_status(const ServerAnswer& status, EngineReport& report) const {
        if (!status.ok() || !status.body.is_object()) {
            return std::unexpected(server_error(ErrorKind::kUnavailable, server_, "/wisp/status",
                                                status, "see the server's log"));
        }
        report.served = step_in(status.field("served"));
        report.faults = texts_in(status.field("faults"));
        return {};
    }

    Result<void> set_up(EngineReport& report) {
        WISP_ASSIGN(const ServerAnswer answer,
                    server_.post("/wisp/init", {{"init_info", init_info_of(settings_)}},
                                 settings_.update_timeout));
        if (!answer.ok()) {
            const auto kind = answer.status == 409 ? ErrorKind::kConflict : ErrorKind::kUnavailable;
            return std::unexpected(server_error(kind, server_, "it could not be set up", answer,
                                                "it serves what it was started with"));
        }
        report.initialized = true;
        return {};
    }

    Result<void> move(const EngineTarget& target, EngineReport& report) {
        const auto before = report.served;
        const auto seconds = std::chrono::duration<double>(settings_.update_timeout).count();
        WISP_ASSIGN(
            const ServerAnswer answer,
            server_.post(
                "/wisp/update",
                {{"step", target.step}, {"mode", name_of(settings_.pause)}, {"timeout", seconds}},
                settings_.update_timeout + settings_.answer_timeout));
        if (!answer.ok()) {
            const auto kind = answer.status == 409 ? ErrorKind::kConflict : ErrorKind::kUnavailable;
            return std::unexpected(server_error(kind, server_,
                                                fmt::format("step {} was not taken", target.step),
                                                answer, "it goes on with the weights it had"));
        }
        report.served = step_in(answer.field("served"));
        report.pause_seconds = seconds_of(answer.field("pause_seconds")).value_or(0);
        report.phases = seconds_in(answer.field("phases"));
        if (report.served != target.step) {
            return fail(
                ErrorKind::kConflict,
                fmt::format("{}: asked for step {}, it serves {}; see its log", server_.label(),
                            target.step, report.served ? std::to_string(*report.served) : "none"));
        }
        report.moved = before != report.served || report.pause_seconds > 0;
        return {};
    }

    ServerCall server_;
    SessionSettings settings_;
    StockUpdate stock_;
    Reached reached_;
};

}  // namespace

std::unique_ptr<ServerSession> make_vllm_session(ServerCall server, SessionSettings settings) {
    return std::make_unique<VllmSession>(std::move(server), std::move(settings));
}

}  // namespace wisp
