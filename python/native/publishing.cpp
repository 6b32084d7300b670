// The trainer's side: a publisher that works in the background, fed from Python.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>

#include "arrays.hpp"
#include "bindings.hpp"
#include "calls.hpp"
#include "python_streams.hpp"
#include "reports.hpp"
#include "runs.hpp"
#include "wisp/async_publisher.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;
namespace fs = std::filesystem;

Milliseconds milliseconds(double seconds) {
    return Milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// A publisher with its baseline in memory. News of commits wait here until Python asks for them,
/// so that the uploading thread never needs the interpreter.
class PublishSession {
  public:
    using News = Result<PublishReport>;

    Result<void> open(const Location& where, const PublishOptions& options, const fs::path& scratch,
                      bool keep_moves) {
        MemoryReplicaOptions memory;
        memory.threads = options.threads;
        memory.scratch = scratch;
        if (keep_moves) watch_baseline(memory);
        auto baseline = open_memory_replica(memory);
        if (!baseline) return std::unexpected(std::move(baseline).error());
        baseline_ = std::move(*baseline);
        auto publisher = Publisher::open(where, *baseline_, options);
        if (!publisher) return std::unexpected(std::move(publisher).error());
        next_step_ = publisher->next_step();
        run_ = publisher->run();
        const auto* weights = baseline_->weights();
        if (weights != nullptr) schema_ = weights->schema();
        auto started =
            AsyncPublisher::start(std::move(*publisher), [this](const News& news) -> Result<void> {
                const std::scoped_lock lock(mutex_);
                news_.push_back(news);
                return {};
            });
        if (!started) return std::unexpected(std::move(started).error());
        publisher_.emplace(std::move(*started));
        return {};
    }

    AsyncPublisher& publisher() {
        if (!publisher_) raise(Error{ErrorKind::kInvalid, "this publisher is closed"});
        return *publisher_;
    }
    void stop() {
        const Unlocked unlocked;
        publisher_.reset();
        baseline_.reset();
    }
    /// Whether the upload under way ended in time; only then may stop() be called after it.
    bool stop_within(double seconds) {
        nb::gil_scoped_release unlocked;
        return !publisher_ || publisher_->stop_within(milliseconds(seconds));
    }
    std::optional<std::uint64_t> uncommitted() const {
        return publisher_ ? publisher_->uncommitted() : std::nullopt;
    }
    std::vector<News> take_news() {
        const std::scoped_lock lock(mutex_);
        return std::exchange(news_, {});
    }
    /// Only while a stream of this publisher is being read: nobody moves the baseline then.
    const Weights* baseline() const { return baseline_ ? baseline_->weights() : nullptr; }
    bool take_adopted() {
        const std::scoped_lock lock(mutex_);
        return std::exchange(adopted_, false);
    }
    std::vector<MovedBlock> take_moves() {
        const std::scoped_lock lock(mutex_);
        return std::exchange(moves_, {});
    }
    std::uint64_t next_step() const { return next_step_; }
    const std::string& run() const { return run_; }
    const std::optional<Schema>& schema() const { return schema_; }

  private:
    void watch_baseline(MemoryReplicaOptions& memory) {
        memory.on_move = [this](const ReplicaMove& move) -> Result<void> {
            const std::scoped_lock lock(mutex_);
            moves_.insert(moves_.end(), move.blocks->begin(), move.blocks->end());
            return {};
        };
        memory.on_adopt = [this](const Weights&, const ReplicaRecord&) -> Result<void> {
            const std::scoped_lock lock(mutex_);
            adopted_ = true;
            moves_.clear();
            return {};
        };
    }

    std::mutex mutex_;
    std::vector<News> news_;
    bool adopted_ = false;
    std::vector<MovedBlock> moves_;
    std::uint64_t next_step_ = 0;
    std::string run_;
    std::optional<Schema> schema_;
    std::unique_ptr<Replica> baseline_;
    std::optional<AsyncPublisher> publisher_;  // first to go: its thread uses all of the above
};

nb::bytes to_bytes(std::span<const std::byte> bytes) {
    return nb::bytes(bytes.data(), bytes.size());
}

nb::list news_list(PublishSession& session) {
    nb::list list;
    for (PublishSession::News& news : session.take_news()) {
        if (news) {
            list.append(nb::cast(*news));
            continue;
        }
        try {
            raise(news.error());
        } catch (nb::python_error& raised) {
            list.append(nb::borrow(raised.value()));
        }
    }
    return list;
}

nb::list moves_list(PublishSession& session) {
    nb::list list;
    for (const MovedBlock& move : session.take_moves()) {
        list.append(nb::make_tuple(move.tensor, move.first_element,
                                   to_bytes(std::as_bytes(std::span(move.changes.positions))),
                                   to_bytes(move.changes.new_bits)));
    }
    return list;
}

void read_baseline(PublishSession& session, std::size_t tensor, nb::handle into) {
    const Weights* weights = session.baseline();
    HeldBuffer buffer;
    if (weights == nullptr || tensor >= weights->schema().tensors().size() ||
        !buffer.hold(into, true) || buffer.bytes().size() != weights->bytes(tensor).size()) {
        raise(Error{ErrorKind::kInvalid, "the baseline has no such tensor of this size"});
    }
    const Unlocked unlocked;
    std::ranges::copy(weights->bytes(tensor), buffer.bytes().begin());
}

void bind_report(nb::module_& module) {
    nb::class_<PublishReport>(module, "PublishReport", "A step that was committed.")
        .def_ro("seq", &PublishReport::seq)
        .def_ro("epoch", &PublishReport::epoch)
        .def_ro("step", &PublishReport::step)
        .def_prop_ro("kind",
                     [](const PublishReport& self) { return std::string(self.kind_text()); })
        .def_ro("anchored", &PublishReport::anchored)
        .def_ro("rewound", &PublishReport::rewound)
        .def_ro("changed_elements", &PublishReport::changed_elements)
        .def_ro("total_elements", &PublishReport::total_elements)
        .def_ro("delta_bytes", &PublishReport::delta_bytes)
        .def_ro("anchor_bytes", &PublishReport::anchor_bytes)
        .def_ro("uploaded_bytes", &PublishReport::uploaded_bytes)
        .def_ro("reused_bytes", &PublishReport::reused_bytes)
        .def_prop_ro("state", digest_text(&PublishReport::state))
        .def_prop_ro(
            "anchor_failure",
            [](const PublishReport& self) {
                return self.anchor_failure ? std::optional(self.anchor_failure->text)
                                           : std::nullopt;
            },
            "Why an anchor that was due is not there; the step is.")
        .def_ro("diff_seconds", &PublishReport::diff_seconds)
        .def_ro("upload_seconds", &PublishReport::upload_seconds)
        .def_ro("commit_seconds", &PublishReport::commit_seconds)
        .def_ro("baseline_seconds", &PublishReport::baseline_seconds);
}

std::unique_ptr<PublishSession> open_session(const Location& where, std::uint64_t anchor_every,
                                             const Trust& trust, const OptionalPath& sign_key,
                                             const OptionalPath& certificate,
                                             const std::map<std::string, std::string>& metadata,
                                             const std::vector<fs::path>& side_files,
                                             const OptionalPath& scratch,
                                             std::optional<double> expires_after, unsigned threads,
                                             bool keep_moves) {
    PublishOptions options;
    options.run = run_options(trust);
    options.signer = run_signer(sign_key, certificate);
    options.anchor_every = anchor_every;
    options.metadata = metadata;
    options.side_files = side_files;
    options.threads = threads;
    if (expires_after) options.expires_after = milliseconds(*expires_after);
    auto session = std::make_unique<PublishSession>();
    long_call([&] { return session->open(where, options, scratch.value_or(""), keep_moves); });
    return session;
}

/// (name, dtype, shape)
using SchemaTuple = nb::typed<nb::tuple, nb::str, nb::str, nb::typed<nb::tuple, int, nb::ellipsis>>;

}  // namespace

void bind_publishing(nb::module_& module) {
    bind_report(module);
    nb::class_<Schema>(module, "Schema", "Names, dtypes and shapes, in ascending order of name.")
        .def(nb::new_([](nb::typed<nb::iterable, SchemaTuple> tensors) {
                 std::vector<TensorInfo> infos;
                 for (const nb::handle entry : tensors) infos.push_back(tensor_info(entry));
                 return value_of(Schema::make(std::move(infos)));
             }),
             "tensors"_a)
        .def_prop_ro("tensors", &schema_list,
                     nb::sig("def tensors(self, /) -> list[tuple[str, str, tuple[int, ...]]]"))
        .def_prop_ro("digest", &Schema::digest)
        .def_prop_ro("total_bytes", &Schema::total_bytes)
        .def_prop_ro("total_elements", &Schema::total_elements);
    module.attr("BLOCK_ELEMENTS") = kBlockElements;
    nb::class_<PublishSession>(module, "PublishSession", "A publisher and its baseline in memory.")
        .def_prop_ro("run", &PublishSession::run)
        .def_prop_ro("next_step", &PublishSession::next_step, "When the publisher was opened.")
        .def_prop_ro(
            "schema",
            [](const PublishSession& self) -> std::optional<nb::list> {
                if (!self.schema()) return std::nullopt;
                return schema_list(*self.schema());
            },
            nb::sig("def schema(self, /) -> list[tuple[str, str, tuple[int, ...]]] | None"),
            "Of the run's newest state when the publisher was opened; None: there is none.")
        .def(
            "submit",
            [](PublishSession& self, const Schema& schema, nb::callable next, nb::callable restart,
               std::uint64_t step) {
                PythonWeights weights(schema, std::move(next), std::move(restart));
                AsyncPublisher& publisher = self.publisher();
                return long_call([&] { return publisher.submit(weights, step); }).folded;
            },
            "schema"_a, "next"_a, "restart"_a, "step"_a,
            nb::sig("def submit(self, schema: Schema, next: collections.abc.Callable[[], "
                    "collections.abc.Sequence[tuple[int, int, object, bool]]], restart: "
                    "collections.abc.Callable[[], None], step: int) -> bool"),
            "Whether an earlier step that still waited was folded into this one.")
        .def(
            "submit_changes",
            [](PublishSession& self, const Schema& schema, nb::callable next, std::uint64_t step) {
                PythonChanges changes(schema, std::move(next));
                AsyncPublisher& publisher = self.publisher();
                return long_call([&] { return publisher.submit(changes, step); }).folded;
            },
            "schema"_a, "next"_a, "step"_a,
            nb::sig("def submit_changes(self, schema: Schema, next: collections.abc.Callable[[], "
                    "tuple[int, int, "
                    "object, object, object] | None], step: int) -> bool"))
        .def("flush",
             [](PublishSession& self) {
                 AsyncPublisher& publisher = self.publisher();
                 long_call([&] { return publisher.flush(); });
             })
        .def(
            "flush_within",
            [](PublishSession& self, double seconds) {
                AsyncPublisher& publisher = self.publisher();
                long_call([&] { return publisher.flush_within(milliseconds(seconds)); });
            },
            "seconds"_a, "As flush(), but waits through failures until the time is over.")
        .def(
            "miss",
            [](PublishSession& self, std::uint64_t step, const std::string& kind,
               const std::string& text) {
                self.publisher().miss(step, Error{kind_named(kind), text});
            },
            "step"_a, "kind"_a, "text"_a, "A step that could not even be submitted.")
        .def_prop_ro("uncommitted", &PublishSession::uncommitted,
                     "The last submitted step, if it is not committed.")
        .def("stop", &PublishSession::stop)
        .def("stop_within", &PublishSession::stop_within, "seconds"_a,
             "Whether the upload under way has ended; if not, stop() would wait for it.")
        .def("news", &news_list, nb::sig("def news(self) -> list[PublishReport | Exception]"),
             "Reports and exceptions since the last call.")
        .def("take_adopted", &PublishSession::take_adopted)
        .def("take_moves", &moves_list,
             nb::sig("def take_moves(self) -> list[tuple[int, int, bytes, bytes]]"),
             "[(tensor, first element, positions, new bits), …] since the last call.")
        .def("read_baseline", &read_baseline, "tensor"_a, "into"_a);
    module.def(
        "keep_for_ever",
        [](nb::object object) {
            nb::set_leak_warnings(false);
            (void)object.release();
        },
        "object"_a.none(),
        "Never destroys an object: in a forked child its threads are gone and its locks may be "
        "held, and at exit an upload may use it that nobody can end.");
    module.def(
        "changes_by_tensor",
        [](const Location& where, std::uint64_t seq, const Trust& trust) {
            const RunOptions options = run_options(trust);
            const FileReport report =
                long_call([&] { return inspect_commit(where, seq, options); });
            nb::list list;
            for (const TensorReport& tensor : report.tensors) {
                list.append(nb::make_tuple(tensor.tensor.name, tensor.element_count,
                                           tensor.changed_elements, tensor.stored_bytes));
            }
            return list;
        },
        "where"_a, "seq"_a, "trust"_a = Trust{},
        nb::sig("def changes_by_tensor(where: Location, seq: int, trust: Trust = ...) -> "
                "list[tuple[str, int, int, int]]"),
        "[(name, elements, changed elements, stored bytes), …] of a commit's delta.");
    module.def("open_publish_session", &open_session, "where"_a, "anchor_every"_a, "trust"_a,
               "sign_key"_a.none(), "certificate"_a.none(), "metadata"_a, "side_files"_a,
               "scratch"_a.none(), "expires_after"_a.none(), "threads"_a, "keep_moves"_a);
}

}  // namespace wisp::python
