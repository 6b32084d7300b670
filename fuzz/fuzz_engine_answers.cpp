// Any answers of a server that generates. The first line is the call: "vllm look", "vllm bring",
// "sglang look", "sglang bring". Whatever it says, a server that was paused is told to go on, only
// the step that was asked for counts as served, and what is reported can be printed and added up.
#include <algorithm>

#include "engine/server_session.hpp"
#include "engine/sglang_payload.hpp"
#include "scripted_http.hpp"

using namespace wisp;
using namespace wisp::fuzz;

namespace {

constexpr std::uint64_t kStep = 7;

void check_report(const EngineReport& report) {
    FUZZ_CHECK(report.pause_seconds >= 0 && report.pause_seconds <= 1e9);
    FUZZ_CHECK(report.phases.size() <= 64 && report.faults.size() <= 64);
    for (const auto& [name, seconds] : report.phases) {
        FUZZ_CHECK(printable(name) == name && seconds >= 0 && seconds <= 1e9);
    }
    for (const std::string& fault : report.faults) FUZZ_CHECK(printable(fault) == fault);
}

void check_pauses(const ScriptedHttp& http) {
    bool paused = false;
    for (const auto& asked : http.asked()) {
        FUZZ_CHECK(asked.url.origin() == "http://engine.example:8000");
        if (asked.url.path == "/pause" || asked.url.path == "/pause_generation") paused = true;
        if (asked.url.path == "/resume" || asked.url.path == "/continue_generation") paused = false;
    }
    FUZZ_CHECK(!paused);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view script(reinterpret_cast<const char*>(data), size);
    std::string_view line = cut(script, "\n");
    const bool sglang = cut(line, " ") == "sglang";
    const auto http = std::make_shared<ScriptedHttp>(script);
    ServerSignals signals;
    const ServerCall server(http, *parse_url("http://engine.example:8000"), "key", Milliseconds(0),
                            signals);
    SessionSettings settings;
    settings.run = "s3://bucket/run";
    settings.sglang_loader = "wisp.sglang.load_delta";
    const auto session =
        sglang ? make_sglang_session(server, settings) : make_vllm_session(server, settings);
    EngineReport report;
    const bool brings = line == "bring";
    const auto done = brings ? session->bring({kStep, "state"}, report) : session->look(report);
    if (!done) {
        check_error(done.error());
    } else if (brings) {
        FUZZ_CHECK(report.served == kStep);
    }
    check_report(report);
    check_pauses(*http);
    return 0;
}
