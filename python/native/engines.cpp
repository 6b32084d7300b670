// Servers that generate, driven from Python.
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>

#include "bindings.hpp"
#include "calls.hpp"
#include "runs.hpp"
#include "wisp/engine_driver.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

Milliseconds milliseconds(double seconds) {
    return Milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

EnginePause pause_named(const std::string& name) {
    if (name == "keep") return EnginePause::kKeep;
    if (name == "wait") return EnginePause::kWait;
    if (name == "abort") return EnginePause::kAbort;
    raise(Error{ErrorKind::kInvalid, "mode must be \"keep\", \"wait\" or \"abort\""});
}

/// A driver whose threads may call Python.
class DriveSession {
  public:
    DriveSession(const std::string& run, const std::vector<std::string>& vllm,
                 const std::vector<std::string>& sglang, const std::string& api_key,
                 const Trust& trust, const std::string& mode, double timeout,
                 double connect_timeout, double answer_timeout, double watch, nb::object on_report)
        : on_report_(std::move(on_report)) {
        EngineOptions options;
        for (const std::string& url : vllm) {
            options.servers.push_back({url, EngineKind::kVllm, api_key});
        }
        for (const std::string& url : sglang) {
            options.servers.push_back({url, EngineKind::kSglang, api_key});
        }
        options.run = run;
        for (const PublicKey& key : run_options(trust).trust.keys) {
            options.trust.push_back(key.to_text());
        }
        options.min_serial = trust.min_serial;
        options.run_id = trust.run_id;
        options.pause = pause_named(mode);
        options.update_timeout = milliseconds(timeout);
        options.connect_timeout = milliseconds(connect_timeout);
        options.answer_timeout = milliseconds(answer_timeout);
        options.watch = milliseconds(watch);
        if (!on_report_.is_none()) {
            options.on_report = [this](const EngineReport& report) { tell(report); };
        }
        driver_.emplace(value_of(EngineDriver::open(options)));
    }
    ~DriveSession() { close(); }
    DriveSession(const DriveSession&) = delete;
    DriveSession& operator=(const DriveSession&) = delete;

    std::vector<EngineReport> update(std::uint64_t step, const std::string& state) {
        return reports([&](EngineDriver& driver) { return driver.update({step, state}); });
    }
    std::vector<EngineReport> look() {
        return reports([](EngineDriver& driver) { return driver.look(); });
    }
    std::vector<EngineReport> latest() { return driver().latest(); }
    void aim(std::uint64_t step, const std::string& state) { driver().aim({step, state}); }
    void close() {
        const Unlocked unlocked;
        driver_.reset();
    }

  private:
    EngineDriver& driver() {
        if (!driver_) raise(Error{ErrorKind::kInvalid, "this driver is closed"});
        return *driver_;
    }
    template <class Work>
    std::vector<EngineReport> reports(Work&& work) {
        EngineDriver& open = driver();
        return long_call([&]() -> Result<std::vector<EngineReport>> { return work(open); });
    }
    void tell(const EngineReport& report) {
        (void)call_python<void>("on_report", [&]() -> Result<void> {
            try {
                on_report_(report);
            } catch (nb::python_error& raised) {
                raised.discard_as_unraisable("on_report of a wisp.engine.Driver");
            }
            return {};
        });
    }

    nb::object on_report_;
    std::optional<EngineDriver> driver_;
};

std::map<std::string, double> phases_of(const EngineReport& report) {
    return {report.phases.begin(), report.phases.end()};
}

void bind_report(nb::module_& module) {
    nb::class_<EngineReport>(module, "EngineReport", "What one server answered, or did not.")
        .def_ro("url", &EngineReport::url)
        .def_prop_ro("engine",
                     [](const EngineReport& self) { return std::string(name_of(self.kind)); })
        .def_ro("target", &EngineReport::target)
        .def_ro("served", &EngineReport::served, "What it serves now, as far as it said.")
        .def_ro("moved", &EngineReport::moved, "To the target, by this attempt.")
        .def_ro("initialized", &EngineReport::initialized, "It was new, or came back.")
        .def_ro("pause_seconds", &EngineReport::pause_seconds)
        .def_ro("seconds", &EngineReport::seconds)
        .def_prop_ro("phases", &phases_of)
        .def_ro("faults", &EngineReport::faults)
        .def_prop_ro("ok", &EngineReport::ok)
        .def_prop_ro(
            "error", [](const EngineReport& self) { return self.error ? self.error->text : ""; },
            "Empty: none.")
        .def_prop_ro("error_kind", [](const EngineReport& self) {
            return self.error ? std::string(name_of(self.error->kind)) : std::string();
        });
}

}  // namespace

void bind_engines(nb::module_& module) {
    bind_report(module);
    nb::class_<DriveSession>(module, "DriveSession", "Use wisp.engine.Driver.")
        .def(nb::init<const std::string&, const std::vector<std::string>&,
                      const std::vector<std::string>&, const std::string&, const Trust&,
                      const std::string&, double, double, double, double, nb::object>(),
             "run"_a, "vllm"_a, "sglang"_a, "api_key"_a, "trust"_a, "mode"_a, "timeout"_a,
             "connect_timeout"_a, "answer_timeout"_a, "watch"_a, "on_report"_a = nb::none())
        .def("update", &DriveSession::update, "step"_a, "state"_a)
        .def("aim", &DriveSession::aim, "step"_a, "state"_a)
        .def("look", &DriveSession::look)
        .def("latest", &DriveSession::latest)
        .def("close", &DriveSession::close);
}

}  // namespace wisp::python
