#include "wisp/maintenance.hpp"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "calls.hpp"
#include "reports.hpp"
#include "runs.hpp"

namespace wisp::python {

using namespace nb::literals;

namespace {

/// What compact, retain, scrub and export have in common.
MaintenanceOptions maintenance_options(const Trust& trust, const OptionalPath& sign_key,
                                       const OptionalPath& certificate, const OptionalPath& work,
                                       const OptionalPath& base, unsigned threads) {
    MaintenanceOptions options;
    options.run = run_options(trust);
    options.signer = run_signer(sign_key, certificate);
    options.work = work.value_or(std::filesystem::path());
    options.base = base;
    options.threads = threads;
    return options;
}

void bind_reports(nb::module_& module) {
    nb::class_<CompactReport>(module, "CompactReport", "What compact() merged.")
        .def_ro("merged", &CompactReport::merged)
        .def_ro("merged_bytes", &CompactReport::merged_bytes)
        .def_ro("spans_states", &CompactReport::spans_states)
        .def_ro("join_bytes_before", &CompactReport::join_bytes_before)
        .def_ro("join_bytes_after", &CompactReport::join_bytes_after)
        .def_ro("join_objects_before", &CompactReport::join_objects_before)
        .def_ro("join_objects_after", &CompactReport::join_objects_after);
    nb::class_<RetainReport>(module, "RetainReport", "What retain() removed.")
        .def_ro("floor_seq", &RetainReport::floor_seq)
        .def_ro("floor_step", &RetainReport::floor_step)
        .def_ro("floor_moved", &RetainReport::floor_moved)
        .def_ro("waiting_objects", &RetainReport::waiting_objects)
        .def_ro("waiting_bytes", &RetainReport::waiting_bytes)
        .def_ro("removed_objects", &RetainReport::removed_objects)
        .def_ro("removed_bytes", &RetainReport::removed_bytes)
        .def_ro("buried_commits", &RetainReport::buried_commits)
        .def_ro("held_by_branches", &RetainReport::held_by_branches)
        .def_ro("removed_keys", &RetainReport::removed_keys);
    nb::class_<ScrubFinding>(module, "ScrubFinding", "Something that is not as it should be.")
        .def_ro("what", &ScrubFinding::what)
        .def_ro("problem", &ScrubFinding::problem)
        .def_ro("cure", &ScrubFinding::cure);
    nb::class_<ScrubReport>(module, "ScrubReport", "What scrub() proved, and what it could not.")
        .def_ro("commits", &ScrubReport::commits)
        .def_ro("objects", &ScrubReport::objects)
        .def_ro("bytes", &ScrubReport::bytes)
        .def_ro("states_proven", &ScrubReport::states_proven)
        .def_ro("findings", &ScrubReport::findings);
    nb::class_<ExportReport>(module, "ExportReport", "The step that export() wrote.")
        .def_ro("seq", &ExportReport::seq)
        .def_ro("step", &ExportReport::step)
        .def_prop_ro("state", digest_text(&ExportReport::state))
        .def_ro("fetched_bytes", &ExportReport::fetched_bytes)
        .def_ro("fetched_objects", &ExportReport::fetched_objects);
}

void bind_doctor(nb::module_& module) {
    nb::class_<Finding>(module, "Finding", "One promise of a store, tried out.")
        .def_ro("name", &Finding::name)
        .def_prop_ro("verdict",
                     [](const Finding& self) { return std::string(name_of(self.verdict)); })
        .def_ro("detail", &Finding::detail)
        .def_ro("cure", &Finding::cure);
    nb::class_<DoctorReport>(module, "DoctorReport", "Which promises a store keeps.")
        .def_ro("findings", &DoctorReport::findings)
        .def_ro("exclusive_create", &DoctorReport::exclusive_create)
        .def_ro("undecided", &DoctorReport::undecided)
        .def_ro("healthy", &DoctorReport::healthy);
    module.def(
        "examine",
        [](const Location& where, bool quick) {
            return long_call([&] { return examine(where, {.quick = quick}); });
        },
        "where"_a, "quick"_a = false);
}

}  // namespace

void bind_maintenance(nb::module_& module) {
    bind_reports(module);
    bind_doctor(module);
    module.def(
        "compact_run",
        [](const Location& where, const Trust& trust, const OptionalPath& sign_key,
           const OptionalPath& certificate, const OptionalPath& work, const OptionalPath& base,
           unsigned threads) {
            const auto options =
                maintenance_options(trust, sign_key, certificate, work, base, threads);
            return long_call([&] { return compact_run(where, options); });
        },
        "where"_a, "trust"_a = Trust{}, "sign_key"_a = nb::none(), "certificate"_a = nb::none(),
        "work"_a = nb::none(), "base"_a = nb::none(), "threads"_a = 0);
    module.def(
        "retain_run",
        [](const Location& where, std::uint64_t keep_anchors, double grace, double orphan_age,
           bool dry_run, const Trust& trust, const OptionalPath& sign_key,
           const OptionalPath& certificate, const OptionalPath& work, const OptionalPath& base,
           const std::vector<std::string>& release_branches) {
            RetainOptions options;
            options.release_branches = release_branches;
            options.maintenance = maintenance_options(trust, sign_key, certificate, work, base, 0);
            options.keep_anchors = keep_anchors;
            options.grace = Milliseconds(static_cast<std::int64_t>(grace * 1000));
            options.orphan_age = Milliseconds(static_cast<std::int64_t>(orphan_age * 1000));
            options.dry_run = dry_run;
            return long_call([&] { return retain_run(where, options); });
        },
        "where"_a, "keep_anchors"_a, "grace"_a, "orphan_age"_a, "dry_run"_a, "trust"_a = Trust{},
        "sign_key"_a = nb::none(), "certificate"_a = nb::none(), "work"_a = nb::none(),
        "base"_a = nb::none(), "release_branches"_a = std::vector<std::string>());
    module.def(
        "scrub_run",
        [](const Location& where, bool replay, const Trust& trust, const OptionalPath& work,
           const OptionalPath& base, unsigned threads) {
            const auto options =
                maintenance_options(trust, std::nullopt, std::nullopt, work, base, threads);
            return long_call([&] { return scrub_run(where, options, replay); });
        },
        "where"_a, "replay"_a, "trust"_a = Trust{}, "work"_a = nb::none(), "base"_a = nb::none(),
        "threads"_a = 0);
    module.def(
        "export_step",
        [](const Location& where, const std::filesystem::path& output,
           std::optional<std::uint64_t> step, const Trust& trust, const OptionalPath& work,
           const OptionalPath& base, unsigned threads) {
            const auto options =
                maintenance_options(trust, std::nullopt, std::nullopt, work, base, threads);
            return long_call([&] { return export_step(where, step, output, options); });
        },
        "where"_a, "output"_a, "step"_a = nb::none(), "trust"_a = Trust{}, "work"_a = nb::none(),
        "base"_a = nb::none(), "threads"_a = 0);
}

}  // namespace wisp::python
