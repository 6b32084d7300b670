// What a follower tells Python.
#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "replica_view.hpp"
#include "reports.hpp"
#include "wisp/follower.hpp"

namespace wisp::python {

using namespace nb::literals;

namespace {

const char* kind_text(FollowEvent::Kind kind) {
    switch (kind) {
        case FollowEvent::Kind::kApplied: return "applied";
        case FollowEvent::Kind::kJoined: return "joined";
        case FollowEvent::Kind::kWaiting: return "waiting";
        case FollowEvent::Kind::kFault: return "fault";
    }
    return "fault";
}

}  // namespace

void bind_follow_reports(nb::module_& module) {
    nb::class_<FollowEvent>(module, "FollowEvent", "One move of a follower.")
        .def_prop_ro(
            "kind", [](const FollowEvent& self) { return kind_text(self.kind); },
            "\"applied\", \"joined\", \"waiting\" or \"fault\".")
        .def_ro("seq", &FollowEvent::seq)
        .def_ro("epoch", &FollowEvent::epoch)
        .def_ro("step", &FollowEvent::step)
        .def_ro("head_seq", &FollowEvent::head_seq)
        .def_ro("lag_steps", &FollowEvent::lag_steps)
        .def_prop_ro("state", digest_text(&FollowEvent::state))
        .def_ro("fetched_bytes", &FollowEvent::fetched_bytes)
        .def_ro("fetched_objects", &FollowEvent::fetched_objects)
        .def_ro("deltas_applied", &FollowEvent::deltas_applied)
        .def_ro("changed_elements", &FollowEvent::changed_elements)
        .def_ro("commit_age_ms", &FollowEvent::commit_age_ms)
        .def_ro("expired", &FollowEvent::expired)
        .def_ro("fetch_seconds", &FollowEvent::fetch_seconds)
        .def_ro("verify_seconds", &FollowEvent::verify_seconds)
        .def_ro("apply_seconds", &FollowEvent::apply_seconds)
        .def_ro("unproven", &FollowEvent::unproven,
                "Taken on the word of files that carry no digest, as TRL writes them.")
        .def_ro("fault", &FollowEvent::fault, "What went wrong and was worked around.")
        .def_prop_ro("fault_kind",
                     [](const FollowEvent& self) { return std::string(name_of(self.fault_kind)); });
    nb::class_<FollowReport>(module, "FollowReport", "Where a follower stands.")
        .def_prop_ro("step", [](const FollowReport& self) { return self.at.step; })
        .def_prop_ro("seq", [](const FollowReport& self) { return self.at.seq; })
        .def_prop_ro("epoch", [](const FollowReport& self) { return self.at.epoch; })
        .def_prop_ro("has_state", [](const FollowReport& self) { return self.at.state_seq != 0; })
        .def_prop_ro("state", [](const FollowReport& self) { return to_text(self.at.state); })
        .def_ro("moved", &FollowReport::moved)
        .def_prop_ro("unproven", [](const FollowReport& self) { return self.at.unproven; })
        .def_ro("expired", &FollowReport::expired)
        .def_ro("head_seq", &FollowReport::head_seq)
        .def_ro("lag_steps", &FollowReport::lag_steps);
    nb::class_<TakenState>(module, "TakenState", "A whole state, while it is being told.")
        .def_prop_ro(
            "schema", [](const TakenState& self) { return schema_list(self.weights().schema()); },
            nb::sig("def schema(self, /) -> list[tuple[str, str, tuple[int, ...]]]"))
        .def(
            "tensor",
            [](const TakenState& self, std::size_t index) {
                const Weights& weights = self.weights();
                if (index >= weights.schema().tensors().size()) throw nb::index_error();
                const auto bytes = weights.bytes(index);
                return nb::steal(
                    PyByteArray_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                                  static_cast<Py_ssize_t>(bytes.size())));
            },
            "index"_a, nb::sig("def tensor(self, index: int) -> bytearray"),
            "A copy of the tensor's bytes.");
}

}  // namespace wisp::python
