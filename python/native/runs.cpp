#include "runs.hpp"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "calls.hpp"
#include "reports.hpp"
#include "wisp/run_status.hpp"

namespace wisp::python {

using namespace nb::literals;

RunOptions run_options(const Trust& trust) {
    RunOptions options;
    for (const std::string& key : trust.keys)
        options.trust.keys.push_back(value_of(PublicKey::load(key)));
    options.trust.min_serial = trust.min_serial;
    options.expected_run = trust.run_id;
    return options;
}

std::optional<RunSigner> run_signer(const OptionalPath& key, const OptionalPath& certificate) {
    if (!key) {
        if (!certificate) return std::nullopt;
        raise(Error{ErrorKind::kInvalid, "a certificate needs the key that it is for"});
    }
    return value_of(RunSigner::load(*key, certificate.value_or("")));
}

namespace {

void bind_lines(nb::module_& module) {
    nb::class_<CommitSummary>(module, "CommitSummary", "One commit of a run.")
        .def_ro("seq", &CommitSummary::seq)
        .def_ro("epoch", &CommitSummary::epoch)
        .def_ro("step", &CommitSummary::step)
        .def_prop_ro("kind",
                     [](const CommitSummary& self) { return std::string(name_of(self.kind)); })
        .def_ro("writer", &CommitSummary::writer)
        .def_ro("signer", &CommitSummary::signer, "Empty: unsigned.")
        .def_ro("time_ms", &CommitSummary::time_ms)
        .def_ro("delta_bytes", &CommitSummary::delta_bytes)
        .def_ro("anchor_bytes", &CommitSummary::anchor_bytes)
        .def_ro("changed_elements", &CommitSummary::changed_elements)
        .def_ro("total_elements", &CommitSummary::total_elements)
        .def_prop_ro("state", digest_text(&CommitSummary::state))
        .def_ro("rewind_from", &CommitSummary::rewind_from)
        .def_ro("hash", &CommitSummary::hash);
    nb::class_<ReplicaSummary>(module, "ReplicaSummary", "A follower, as its heartbeat tells.")
        .def_ro("id", &ReplicaSummary::id)
        .def_ro("seq", &ReplicaSummary::seq)
        .def_ro("step", &ReplicaSummary::step)
        .def_ro("lag_steps", &ReplicaSummary::lag_steps)
        .def_ro("seen_ms", &ReplicaSummary::seen_ms, "Age of its last heartbeat.")
        .def_prop_ro(
            "status", [](const ReplicaSummary& self) { return std::string(name_of(self.status)); },
            "One of \"joining\", \"following\", \"failing\", \"stopped\", \"unknown\".");
    nb::class_<AnchorSummary>(module, "AnchorSummary", "A whole checkpoint in the bucket.")
        .def_ro("seq", &AnchorSummary::seq)
        .def_ro("step", &AnchorSummary::step)
        .def_ro("bytes", &AnchorSummary::bytes)
        .def_ro("base_name", &AnchorSummary::base_name);
}

void bind_status(nb::module_& module) {
    const auto severity = []<class T>(const T& self) {
        return std::string(name_of(self.severity));
    };
    nb::class_<Concern>(module, "Concern", "What is not well about a run.")
        .def_prop_ro("severity", [=](const Concern& self) { return severity(self); })
        .def_prop_ro(
            "cause", [](const Concern& self) { return std::string(name_of(self.cause)); },
            "Stable across releases, e.g. \"replica_silent\".")
        .def_ro("text", &Concern::text);
    nb::class_<RunVerdict>(module, "RunVerdict", "How a run is, in one line.")
        .def_prop_ro(
            "severity", [=](const RunVerdict& self) { return severity(self); },
            "One of \"ok\", \"warning\", \"critical\".")
        .def_ro("text", &RunVerdict::text)
        .def_ro("concerns", &RunVerdict::concerns, "The worst first.");
    nb::class_<ObjectTotals>(module, "ObjectTotals", "How many objects, and how large.")
        .def_ro("objects", &ObjectTotals::objects)
        .def_ro("bytes", &ObjectTotals::bytes);
    nb::class_<RunStatus>(module, "RunStatus", "A run at a glance.")
        .def_ro("run", &RunStatus::run)
        .def_prop_ro("single_writer",
                     [](const RunStatus& self) { return self.mode == CommitMode::kSingleWriter; })
        .def_prop_ro("codec",
                     [](const RunStatus& self) { return std::string(name_of(self.codec)); })
        .def_ro("is_signed", &RunStatus::is_signed)
        .def_ro("roots", &RunStatus::roots, "Ids of the keys that vouch for it.")
        .def_ro("head", &RunStatus::head, "None: nothing was published yet.")
        .def_ro("head_age_ms", &RunStatus::head_age_ms)
        .def_ro("expired", &RunStatus::expired)
        .def_ro("floor_seq", &RunStatus::floor_seq)
        .def_ro("anchors", &RunStatus::anchors)
        .def_ro("merged_deltas", &RunStatus::merged_deltas)
        .def_ro("stored", &RunStatus::stored, "None: the objects were not counted.")
        .def_ro("join", &RunStatus::join,
                "What a late joiner would read now. None: no anchor leads to the newest step.")
        .def_ro("replicas", &RunStatus::replicas)
        .def_ro("branches", &RunStatus::branches)
        .def_ro("verdict", &RunStatus::verdict);
    nb::class_<InitReport>(module, "InitReport", "A run that was started.")
        .def_ro("run", &InitReport::run)
        .def_prop_ro("codec",
                     [](const InitReport& self) { return std::string(name_of(self.codec)); })
        .def_ro("is_signed", &InitReport::is_signed)
        .def_ro("already_there", &InitReport::already_there)
        .def_ro("branch_step", &InitReport::branch_step)
        .def_ro("shared_bytes", &InitReport::shared_bytes);
}

InitReport init(const Location& where, bool single_writer, const std::optional<Location>& branch_of,
                std::optional<std::uint64_t> branch_step, const Trust& trust,
                const OptionalPath& sign_key, const OptionalPath& certificate, const Trust& roots,
                const std::optional<std::string>& codec, std::optional<unsigned> slices) {
    InitOptions options;
    options.slices = slices;
    if (codec) options.codec = codec_named(*codec);
    options.run = run_options(trust);
    options.roots = run_options(roots).trust.keys;
    options.mode = single_writer ? CommitMode::kSingleWriter : CommitMode::kExclusive;
    options.signer = run_signer(sign_key, certificate);
    options.branch_of = branch_of;
    options.branch_step = branch_step;
    return long_call([&] { return init_run(where, options); });
}

ReplicaStatus status_named(const std::string& name) {
    if (const auto status = parse_replica_status(name)) return *status;
    raise(Error{ErrorKind::kInvalid,
                "status '" + name + "' is unknown; take joining, following, failing or stopped"});
}

void bind_trust(nb::module_& module) {
    nb::class_<Trust>(module, "Trust", "Whom to believe, and which run.")
        .def(nb::new_(
                 [](std::vector<std::string> keys, std::uint64_t min_serial, std::string run_id) {
                     return Trust{std::move(keys), min_serial, std::move(run_id)};
                 }),
             "keys"_a = std::vector<std::string>{}, "min_serial"_a = 0, "run_id"_a = "")
        .def_ro("keys", &Trust::keys)
        .def_ro("min_serial", &Trust::min_serial)
        .def_ro("run_id", &Trust::run_id, "Empty: whichever run is at the address.");
}

}  // namespace

void bind_runs(nb::module_& module) {
    bind_trust(module);
    bind_lines(module);
    bind_status(module);
    module.def("init_run", &init, "where"_a, "single_writer"_a = false, "branch_of"_a = nb::none(),
               "branch_step"_a = nb::none(), "trust"_a = Trust{}, "sign_key"_a = nb::none(),
               "certificate"_a = nb::none(), "roots"_a = Trust{}, "codec"_a = nb::none(),
               "slices"_a = nb::none());
    module.def(
        "read_slices",
        [](const Location& where, std::uint64_t weight_bytes, const Trust& trust) {
            const RunOptions options = run_options(trust);
            return long_call([&] { return read_slices(where, weight_bytes, options); });
        },
        "where"_a, "weight_bytes"_a, "trust"_a = Trust{},
        "How many slices the deltas of a run are cut into, for weights of this size.");
    module.def(
        "read_codec",
        [](const Location& where, const Trust& trust) {
            const RunOptions options = run_options(trust);
            return std::string(name_of(long_call([&] { return read_codec(where, options); })));
        },
        "where"_a, "trust"_a = Trust{});
    module.def(
        "tell_replica",
        [](const Location& where, const std::string& id, std::uint64_t seq,
           const std::string& status, std::optional<std::int64_t> pause_us,
           std::optional<std::int64_t> every_ms, const Trust& trust) {
            const RunOptions options = run_options(trust);
            const ReplicaBeat beat{id, seq, status_named(status), pause_us, every_ms};
            long_call([&] { return tell_replica(where, options, beat); });
        },
        "where"_a, "id"_a, "seq"_a, "status"_a, "pause_us"_a.none() = nb::none(),
        "every_ms"_a.none() = nb::none(), "trust"_a = Trust{},
        "Writes the heartbeat of a replica that another process holds.");
    module.def(
        "read_log",
        [](const Location& where, std::uint64_t count, const Trust& trust) {
            const RunOptions options = run_options(trust);
            return long_call([&] { return read_log(where, count, options); });
        },
        "where"_a, "count"_a, "trust"_a = Trust{});
    module.def(
        "read_status",
        [](const Location& where, bool count_objects, const Trust& trust) {
            const RunOptions options = run_options(trust);
            return long_call([&] { return read_status(where, options, count_objects); });
        },
        "where"_a, "count_objects"_a = true, "trust"_a = Trust{});
}

}  // namespace wisp::python
