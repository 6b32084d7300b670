#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/stopwatch.hpp"
#include "base/try.hpp"
#include "engine/server_session.hpp"
#include "engine/sglang_payload.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp {
namespace {

constexpr Milliseconds kStagingLook{50};
constexpr double kFailingPatience = 15;  // seconds

/// SGLang's words: "retract" puts requests back into the queue, so that their caches can be made
/// anew with the new weights; none of them fails.
const char* pause_text(EnginePause pause) {
    return pause == EnginePause::kAbort ? "abort" : "retract";
}

/// A server that was started with --custom-weight-loader wisp.sglang.load_delta. That function is
/// called in every worker with what we send, and answers through /get_weights_by_name.
class SglangSession : public ServerSession {
  public:
    SglangSession(ServerCall server, SessionSettings settings)
        : server_(std::move(server)), settings_(std::move(settings)) {}

    Result<void> look(EngineReport& report) const override {
        WISP_ASSIGN(const auto record, loader_status());
        if (record) read_record(*record, report);
        return {};
    }

    Result<void> bring(const EngineTarget& target, EngineReport& report) override {
        WISP_ASSIGN(auto record, loader_status());
        const std::string theirs = record ? text_in(*record, "run") : std::string();
        if (theirs.empty()) {
            WISP_TRY(set_up(report));
        } else if (!same_run(theirs, settings_.run)) {
            return std::unexpected(other_run(server_, theirs, settings_.run));
        }
        WISP_ASSIGN(record, wait_for_staging(target));
        read_record(*record, report);
        if (report.served != target.step || !reached_.holds(target)) {
            WISP_TRY(move(target, report));
        }
        reached_.set(target);
        return {};
    }

  private:
    static std::string text_in(const nlohmann::json& record, const char* name) {
        const auto at = record.find(name);
        return at != record.end() && at->is_string() ? at->get<std::string>() : std::string();
    }
    static std::optional<std::uint64_t> step_in(const nlohmann::json& record, const char* name) {
        const auto at = record.find(name);
        return at == record.end() ? std::nullopt : step_of_version(*at);
    }
    static void read_record(const nlohmann::json& record, EngineReport& report) {
        report.served = step_in(record, "served");
        if (const auto faults = record.find("faults"); faults != record.end()) {
            report.faults = texts_in(*faults);
        }
        if (const auto phases = record.find("phases"); phases != record.end()) {
            report.phases = seconds_in(*phases);
        }
    }

    /// What the loader says; nothing as long as it was not called.
    Result<std::optional<nlohmann::json>> loader_status() const {
        WISP_ASSIGN(
            const ServerAnswer answer,
            server_.post("/get_weights_by_name", {{"name", kSglangName}, {"truncate_size", 1}},
                         settings_.answer_timeout));
        if (answer.missing()) {
            return std::unexpected(
                wrong_server(server_, EngineKind::kSglang, settings_.answer_timeout));
        }
        return answer.ok() ? sglang_record(answer.body) : std::nullopt;
    }

    Result<void> post(const std::string& path, const nlohmann::json& body, Milliseconds timeout,
                      std::string_view cure) const {
        WISP_ASSIGN(const ServerAnswer answer, server_.post(path, body, timeout));
        if (answer.ok() && answer.field("success") != false) return {};
        return std::unexpected(server_error(ErrorKind::kUnavailable, server_, path, answer, cure));
    }

    /// Every worker gets a payload of its own; all of ours are alike.
    Result<std::size_t> workers() const {
        WISP_ASSIGN(const ServerAnswer info, server_.get("/server_info", settings_.answer_timeout));
        const auto& size = info.field("tp_size");
        if (!info.ok() || !size.is_number_unsigned()) {
            return std::unexpected(
                server_error(ErrorKind::kUnsupported, server_, "/server_info", info,
                             "wisp needs an SGLang that tells its tp_size there"));
        }
        const auto& loaders = info.field("custom_weight_loader");
        const auto is_ours = [&](const nlohmann::json& name) {
            return name == settings_.sglang_loader;
        };
        const bool listed =
            loaders.is_array() && std::any_of(loaders.begin(), loaders.end(), is_ours);
        if (!listed) {
            return fail(ErrorKind::kUnsupported,
                        fmt::format("{}: start it with --custom-weight-loader {}", server_.label(),
                                    settings_.sglang_loader));
        }
        return std::clamp<std::size_t>(size.get<std::size_t>(), 1, 4096);
    }

    /// Calls the loader in every worker. Older servers have no sessions of updates.
    Result<void> call_loader(const nlohmann::json& record, bool flush) {
        WISP_ASSIGN(const std::size_t count, workers());
        const nlohmann::json all = {{"selector", "target"}};
        WISP_ASSIGN(ServerAnswer begun,
                    server_.post("/begin_weight_update", all, settings_.answer_timeout));
        if (!begun.ok() && !begun.missing()) {
            // Somebody may have begun one and died: that one has to be ended first.
            (void)server_.post("/end_weight_update", nlohmann::json::object(),
                               settings_.answer_timeout);
            WISP_ASSIGN(begun, server_.post("/begin_weight_update", all, settings_.answer_timeout));
        }
        if (!begun.ok() && !begun.missing()) {
            return std::unexpected(server_error(ErrorKind::kUnavailable, server_,
                                                "/begin_weight_update", begun,
                                                "see the server's log"));
        }
        nlohmann::json request = {
            {"serialized_named_tensors", std::vector<std::string>(count, sglang_payload(record))},
            {"load_format", settings_.sglang_loader},
            {"flush_cache", flush}};
        if (!begun.missing()) request["selector"] = "target";
        auto loaded = post("/update_weights_from_tensor", request, settings_.update_timeout,
                           "it goes on with the weights it had");
        if (!begun.missing()) {
            auto ended = post("/end_weight_update", nlohmann::json::object(),
                              settings_.answer_timeout, "see the server's log");
            if (loaded && !ended) return ended;
        }
        return loaded;
    }

    Result<void> set_up(EngineReport& report) {
        WISP_ASSIGN(const ServerAnswer info, server_.get("/model_info", settings_.answer_timeout));
        nlohmann::json record = init_info_of(settings_);
        record["action"] = "prepare";
        // To prove the layout of memory with. Only a text is passed on: JSON may be nested so
        // deeply that copying it takes more stack than there is.
        record["checkpoint"] = nullptr;
        if (const auto& path = info.field("model_path"); path.is_string()) {
            record["checkpoint"] = path.get_ref<const std::string&>();
        }
        // Nothing changes, so requests may stay where they are.
        auto begun = post("/pause_generation", {{"mode", "in_place"}}, settings_.answer_timeout,
                          "see the server's log");
        if (begun) begun = call_loader(record, false);
        WISP_TRY(resumed(std::move(begun)));
        report.initialized = true;
        return {};
    }

    /// Outside the pause: the workers fetch and prove in the background.
    Result<nlohmann::json> wait_for_staging(const EngineTarget& target) const {
        const Stopwatch watch;
        const double patience = std::chrono::duration<double>(settings_.update_timeout).count();
        for (;;) {
            WISP_ASSIGN(auto record, loader_status());
            if (!record) {
                return fail(ErrorKind::kUnavailable,
                            fmt::format("{}: {} was called, but says nothing; see the server's log",
                                        server_.label(), settings_.sglang_loader));
            }
            const bool there = step_in(*record, "staged") == target.step ||
                               step_in(*record, "served") == target.step;
            if (there) return std::move(*record);
            const std::string cause = text_in(*record, "failure");
            // The workers try again by themselves; what still fails after a while needs a hand.
            const bool hopeless = !cause.empty() && watch.seconds() > kFailingPatience;
            if (hopeless || watch.seconds() > patience || stopped() || server_.is_ended()) {
                return fail(
                    ErrorKind::kUnavailable,
                    fmt::format("{}: step {} is not staged there; {}", server_.label(), target.step,
                                cause.empty() ? "see the server's log" : printable(cause)));
            }
            std::this_thread::sleep_for(kStagingLook);
        }
    }

    Result<void> move(const EngineTarget& target, EngineReport& report) {
        nlohmann::json record = {
            {"action", "apply"}, {"run", settings_.run}, {"step", target.step}};
        const Stopwatch watch;
        Result<void> switched;
        // Without a pause SGLang lets requests under way end before it calls the loader.
        const bool pauses = settings_.pause != EnginePause::kWait;
        if (pauses) {
            switched = post("/pause_generation", {{"mode", pause_text(settings_.pause)}},
                            settings_.update_timeout, "see the server's log");
        }
        if (switched) switched = call_loader(record, true);
        if (switched) switched = name_version(target, report);
        if (pauses) switched = resumed(std::move(switched));
        report.pause_seconds = watch.seconds();
        WISP_TRY(std::move(switched));
        report.moved = true;
        return {};
    }

    /// The loader cannot fail loudly without taking the server with it: what it says counts.
    Result<void> name_version(const EngineTarget& target, EngineReport& report) const {
        WISP_ASSIGN(const auto record, loader_status());
        if (record) read_record(*record, report);
        if (!record || report.served != target.step) {
            const std::string cause = record ? text_in(*record, "error") : std::string();
            return fail(ErrorKind::kUnavailable,
                        fmt::format("{}: step {} was not taken{}{}; it goes on with the weights it "
                                    "had",
                                    server_.label(), target.step, cause.empty() ? "" : ": ",
                                    printable(cause)));
        }
        return post("/update_weight_version",
                    {{"new_version", std::to_string(target.step)}, {"abort_all_requests", false}},
                    settings_.answer_timeout, "see the server's log");
    }

    Result<void> resumed(Result<void> done) const {
        return resumed_after(std::move(done), server_, "/continue_generation",
                             {{"torch_empty_cache", false}}, settings_.answer_timeout);
    }

    ServerCall server_;
    SessionSettings settings_;
    Reached reached_;
};

}  // namespace

std::unique_ptr<ServerSession> make_sglang_session(ServerCall server, SessionSettings settings) {
    return std::make_unique<SglangSession>(std::move(server), std::move(settings));
}

}  // namespace wisp
