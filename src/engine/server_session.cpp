#include "engine/server_session.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/decimal.hpp"
#include "base/text.hpp"
#include "wisp/result.hpp"

namespace wisp {
namespace {

constexpr std::size_t kMostEntries = 64;
constexpr std::size_t kLongestText = 1000;
constexpr double kLongestSeconds = 1e9;  // sums of them stay finite

std::string_view bare(std::string_view run) {
    constexpr std::string_view kFile = "file://";
    if (run.starts_with(kFile)) run.remove_prefix(kFile.size());
    while (run.size() > 1 && run.ends_with('/')) run.remove_suffix(1);
    return run;
}

bool answers(const ServerCall& server, const char* path, const char* with, Milliseconds timeout) {
    const auto answer = server.get(path, timeout);
    return answer && answer->ok() && !answer->field(with).is_null();
}

}  // namespace

std::string_view name_of(EnginePause pause) {
    switch (pause) {
        case EnginePause::kKeep: return "keep";
        case EnginePause::kWait: return "wait";
        case EnginePause::kAbort: return "abort";
    }
    return "keep";
}

bool same_run(std::string_view one, std::string_view other) {
    return bare(one) == bare(other);
}

nlohmann::json init_info_of(const SessionSettings& settings) {
    nlohmann::json info = {{"run", settings.run}, {"trust", settings.trust}, {"mode", "push"}};
    if (settings.min_serial != 0) info["min_serial"] = settings.min_serial;
    if (!settings.run_id.empty()) info["run_id"] = settings.run_id;
    return info;
}

std::optional<std::uint64_t> step_of_version(const nlohmann::json& version) {
    if (version.is_number_unsigned()) return version.get<std::uint64_t>();
    if (!version.is_string()) return std::nullopt;
    return whole_number(version.get_ref<const std::string&>());
}

std::optional<double> seconds_of(const nlohmann::json& value) {
    if (!value.is_number()) return std::nullopt;
    const double seconds = value.get<double>();
    return seconds >= 0 && seconds <= kLongestSeconds ? std::optional(seconds) : std::nullopt;
}

std::vector<std::pair<std::string, double>> seconds_in(const nlohmann::json& object) {
    std::vector<std::pair<std::string, double>> found;
    if (!object.is_object()) return found;
    for (const auto& [name, value] : object.items()) {
        const auto seconds = seconds_of(value);
        if (!seconds || found.size() == kMostEntries) continue;
        found.emplace_back(printable(std::string_view(name).substr(0, kLongestText)), *seconds);
    }
    return found;
}

std::vector<std::string> texts_in(const nlohmann::json& array) {
    std::vector<std::string> found;
    if (!array.is_array()) return found;
    for (const auto& value : array) {
        if (!value.is_string() || found.size() == kMostEntries) continue;
        const auto& text = value.get_ref<const std::string&>();
        found.push_back(printable(std::string_view(text).substr(0, kLongestText)));
    }
    return found;
}

Error wrong_server(const ServerCall& server, EngineKind wanted, Milliseconds timeout) {
    const bool vllm = answers(server, "/version", "version", timeout);
    const bool sglang = !vllm && answers(server, "/model_info", "model_path", timeout);
    if (sglang && wanted == EngineKind::kVllm) {
        return {ErrorKind::kInvalid,
                fmt::format("{} is an SGLang server; name it with --sglang", server.label())};
    }
    if (vllm && wanted == EngineKind::kSglang) {
        return {ErrorKind::kInvalid,
                fmt::format("{} is a vLLM server; name it with --vllm", server.label())};
    }
    if (vllm) {
        return {ErrorKind::kUnsupported,
                fmt::format("{} is a vLLM server without wisp: install wisp-sync where it runs and "
                            "start it with --weight-transfer-config '{{\"backend\":\"wisp\"}}'",
                            server.label())};
    }
    return {ErrorKind::kInvalid,
            fmt::format("{} answers, but is no {} server; check the address and the port",
                        server.label(), wanted == EngineKind::kVllm ? "vLLM" : "SGLang")};
}

Error other_run(const ServerCall& server, const std::string& theirs, const std::string& ours) {
    return {ErrorKind::kConflict,
            fmt::format("{} follows another run, {}, and was left alone; follow that one, or start "
                        "the server anew to have it follow {}",
                        server.label(), shown(theirs), shown(ours))};
}

}  // namespace wisp
