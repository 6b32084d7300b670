#include "engine/stock_update.hpp"

#include <fmt/format.h>

#include "base/stopwatch.hpp"
#include "base/try.hpp"

namespace wisp {

Result<void> StockUpdate::look(EngineReport& report) const {
    WISP_ASSIGN(const ServerAnswer info, server_.get("/weight_info", settings_.answer_timeout));
    if (info.missing()) {
        return std::unexpected(wrong_server(server_, EngineKind::kVllm, settings_.answer_timeout));
    }
    if (!info.ok()) {
        return std::unexpected(server_error(ErrorKind::kUnavailable, server_, "/weight_info", info,
                                            "see the server's log"));
    }
    report.served = step_of_version(info.field("weight_version"));
    return {};
}

Result<void> StockUpdate::step(const std::string& path, const nlohmann::json& body,
                               Milliseconds timeout, std::string_view cure) {
    WISP_ASSIGN(const ServerAnswer answer, server_.post(path, body, timeout));
    if (answer.ok()) return {};
    return std::unexpected(server_error(ErrorKind::kUnavailable, server_, path, answer, cure));
}

Result<void> StockUpdate::set_up(EngineReport& report) {
    WISP_TRY(step("/init_weight_transfer_engine", {{"init_info", init_info_of(settings_)}},
                  settings_.update_timeout,
                  "start it with --weight-transfer-config '{\"backend\":\"wisp\"}', and see its "
                  "log"));
    set_up_ = true;
    report.initialized = true;
    return {};
}

Result<void> StockUpdate::start() {
    const auto begin = [&] {
        return step("/start_weight_update", nlohmann::json::object(), settings_.answer_timeout,
                    "see the server's log");
    };
    if (begin()) return {};
    // Somebody may have started an update and died: that one has to be ended first.
    (void)server_.post("/finish_weight_update", nlohmann::json::object(), settings_.answer_timeout);
    return begin();
}

Result<void> StockUpdate::switch_paused(const EngineTarget& target) {
    WISP_TRY(start());
    WISP_TRY(step("/update_weights", {{"update_info", {{"step", target.step}}}},
                  settings_.update_timeout, "it goes on with the weights it had"));
    return step("/finish_weight_update", {{"weight_version", std::to_string(target.step)}},
                settings_.answer_timeout, "see the server's log");
}

Result<void> StockUpdate::bring(const EngineTarget& target, bool anew, EngineReport& report) {
    const auto known = left_at_;
    left_at_.reset();
    WISP_TRY(look(report));
    const bool restarted = report.served != known;
    if (!set_up_ || restarted) WISP_TRY(set_up(report));
    if (report.served == target.step && !anew) {
        left_at_ = report.served;
        return {};
    }
    const Stopwatch watch;
    // A pause without an answer may have paused all the same.
    auto switched =
        step(fmt::format("/pause?mode={}", name_of(settings_.pause)), nlohmann::json::object(),
             settings_.update_timeout, "start it with VLLM_SERVER_DEV_MODE=1");
    if (switched) switched = switch_paused(target);
    switched = resumed_after(std::move(switched), server_, "/resume", nlohmann::json::object(),
                             settings_.answer_timeout);
    report.pause_seconds = watch.seconds();
    WISP_TRY(std::move(switched));
    WISP_TRY(look(report));
    if (report.served != target.step) {
        return fail(ErrorKind::kUnavailable,
                    fmt::format("{}: all was done, but it says that it serves {}; see its log",
                                server_.label(),
                                report.served ? std::to_string(*report.served) : "no step"));
    }
    left_at_ = report.served;
    report.moved = true;
    return {};
}

}  // namespace wisp
