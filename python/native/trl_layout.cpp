// Publishing into a bucket in TRL's layout. Following one is FollowSession's, as of any run.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "bindings.hpp"
#include "calls.hpp"
#include "runs.hpp"
#include "wisp/trl_layout.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

/// A bucket, how to write to it, and the baseline in memory.
struct TrlPublishSession {
    Location where;
    TrlPublishOptions options;
    std::unique_ptr<Replica> baseline;
};

std::unique_ptr<TrlPublishSession> open_session(const Location& where, const std::string& codec,
                                                std::uint64_t anchor_every,
                                                const OptionalPath& scratch, unsigned threads) {
    auto session = std::make_unique<TrlPublishSession>();
    session->where = where;
    const auto parsed = parse_codec(codec);
    if (!parsed || holds_blocks(*parsed)) {
        raise(Error{ErrorKind::kInvalid,
                    "TRL reads no codec '" + codec + "'; use \"plain\" or \"gap\""});
    }
    session->options.codec = *parsed;
    session->options.anchor_every = anchor_every;
    session->options.threads = threads;
    MemoryReplicaOptions memory;
    memory.threads = threads;
    memory.scratch = scratch.value_or(std::filesystem::path());
    session->baseline = long_call([&] { return open_memory_replica(memory); });
    return session;
}

}  // namespace

void bind_trl_layout(nb::module_& module) {
    nb::class_<TrlPublishSession>(module, "TrlPublishSession",
                                  "The C++ side of wisp.trl.LayoutPublisher.")
        .def(
            "publish",
            [](TrlPublishSession& self, const Weights& weights, std::optional<std::uint64_t> step) {
                return long_call([&] {
                    return publish_trl(self.where, *self.baseline, weights, step, self.options);
                });
            },
            "weights"_a, "step"_a.none());
    module.def("open_trl_publish_session", &open_session, "where"_a, "codec"_a, "anchor_every"_a,
               "scratch"_a.none(), "threads"_a);
}

}  // namespace wisp::python
