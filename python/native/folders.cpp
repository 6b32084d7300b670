// Folders that others read or write: a follower's, held still, and checkpoints that become
// complete.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "calls.hpp"
#include "runs.hpp"
#include "wisp/followed_folders.hpp"
#include "wisp/publisher.hpp"
#include "wisp/run_status.hpp"
#include "wisp/step_folders.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

Milliseconds milliseconds(double seconds) {
    return Milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

struct HeldFolder {
    std::optional<FolderReading> reading;
    const FolderReading& held() const {
        if (!reading) raise(Error{ErrorKind::kInvalid, "this folder is not held any more"});
        return *reading;
    }
};

/// A publisher of checkpoints on disk, with its baseline in a folder.
struct CheckpointPublisher {
    std::unique_ptr<Replica> baseline;
    std::optional<Publisher> publisher;
    std::optional<std::uint64_t> step() const {
        const ReplicaRecord& at = publisher->at();
        return at.state_seq == 0 ? std::nullopt : std::optional(at.step);
    }
};

Result<std::filesystem::path> baseline_of(const Location& where, const RunOptions& options) {
    auto status = read_status(where, options, false);
    if (!status) return std::unexpected(std::move(status).error());
    return cached_baseline(status->run);
}

Result<CheckpointPublisher> open_checkpoint_publisher(const Location& where,
                                                      const OptionalPath& baseline,
                                                      const PublishOptions& options) {
    auto folder =
        baseline ? Result<std::filesystem::path>(*baseline) : baseline_of(where, options.run);
    if (!folder) return std::unexpected(std::move(folder).error());
    FolderReplicaOptions cache;
    cache.threads = options.threads;
    cache.durable = false;
    auto replica = open_folder_replica(*folder, cache);
    if (!replica) return std::unexpected(std::move(replica).error());
    CheckpointPublisher made{std::move(*replica), std::nullopt};
    auto publisher = Publisher::open(where, *made.baseline, options);
    if (!publisher) return std::unexpected(std::move(publisher).error());
    made.publisher.emplace(std::move(*publisher));
    return made;
}

using StepFolders = std::vector<std::pair<std::uint64_t, std::filesystem::path>>;

StepFolders listed(const std::vector<StepFolder>& folders) {
    StepFolders list;
    for (const StepFolder& folder : folders) list.emplace_back(folder.step, folder.folder);
    return list;
}

}  // namespace

void bind_folders(nb::module_& module) {
    nb::class_<HeldFolder>(module, "HeldFolder", "A folder of a follower that stays at its step.")
        .def(
            "__init__",
            [](HeldFolder* self, const std::filesystem::path& folder, double timeout) {
                new (self) HeldFolder{
                    long_call([&] { return FolderReading::begin(folder, milliseconds(timeout)); })};
            },
            "folder"_a, "timeout"_a)
        .def_prop_ro("folder", [](const HeldFolder& self) { return self.held().folder().string(); })
        .def_prop_ro("step", [](const HeldFolder& self) { return self.held().at().step; })
        .def_prop_ro("state",
                     [](const HeldFolder& self) { return to_text(self.held().at().state); })
        .def("release", [](HeldFolder& self) { self.reading.reset(); });
    nb::class_<CheckpointPublisher>(module, "CheckpointPublisher",
                                    "The C++ side of wisp.folders.FolderPublisher.")
        .def(
            "__init__",
            [](CheckpointPublisher* self, const Location& where, const OptionalPath& baseline,
               const Trust& trust, const OptionalPath& sign_key, const OptionalPath& certificate,
               std::uint64_t anchor_every, unsigned threads) {
                PublishOptions options;
                options.run = run_options(trust);
                options.signer = run_signer(sign_key, certificate);
                options.anchor_every = anchor_every;
                options.threads = threads;
                new (self) CheckpointPublisher(
                    long_call([&] { return open_checkpoint_publisher(where, baseline, options); }));
            },
            "where"_a, "baseline"_a.none(), "trust"_a, "sign_key"_a.none(), "certificate"_a.none(),
            "anchor_every"_a, "threads"_a)
        .def_prop_ro("step", &CheckpointPublisher::step)
        .def(
            "publish",
            [](CheckpointPublisher& self, const std::filesystem::path& checkpoint,
               std::uint64_t step) {
                return long_call([&]() -> Result<PublishReport> {
                    auto opened = Checkpoint::open(checkpoint);
                    if (!opened) return std::unexpected(std::move(opened).error());
                    return self.publisher->publish(*opened, step);
                });
            },
            "checkpoint"_a, "step"_a);
    nb::class_<FolderWatch>(module, "FolderWatch", "Checkpoint folders that become complete.")
        .def(
            "__init__",
            [](FolderWatch* self, const std::string& where, const std::string& ready,
               double quiet) {
                auto pattern = StepPattern::is_one(where) ? value_of(StepPattern::parse(where))
                                                          : StepPattern::any_in(where);
                new (self) FolderWatch(std::move(pattern), {ready, milliseconds(quiet)});
            },
            "where"_a, "ready"_a, "quiet"_a)
        .def(
            "look",
            [](FolderWatch& self, std::optional<std::uint64_t> past) {
                const FolderLook look = long_call([&] { return self.look(past); });
                return std::tuple(listed(look.ready), listed(look.passed_over),
                                  look.unfinished.has_value());
            },
            "past"_a.none(),
            "(complete, passed over, whether one is being written) after the step `past`; folders "
            "as (step, path).")
        .def(
            "give_up",
            [](FolderWatch& self, std::uint64_t step, const std::filesystem::path& folder) {
                self.give_up({step, folder});
            },
            "step"_a, "folder"_a);
}

}  // namespace wisp::python
