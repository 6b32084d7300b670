#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <stop_token>

#include "bindings.hpp"
#include "calls.hpp"
#include "relaying.hpp"
#include "replica_view.hpp"
#include "reports.hpp"
#include "revocable_replica.hpp"
#include "runs.hpp"
#include "told_move.hpp"
#include "waking_clock.hpp"
#include "wisp/control.hpp"
#include "wisp/followed_folders.hpp"
#include "wisp/follower.hpp"
#include "wisp/trl_layout.hpp"

namespace wisp::python {

using namespace nb::literals;

namespace {

/// What a follower that is shut has for its last heartbeat.
constexpr Milliseconds kFarewell(200);

/// A hook that raised is no fault of the run: nothing is worked around or tried again.
template <class Call>
Result<void> tell_python(std::string_view what, Call&& call) {
    auto told = call_python<void>(what, [&]() -> Result<void> {
        call();
        return {};
    });
    if (!told) told.error().kind = ErrorKind::kInternal;
    return told;
}

/// A C++ follower with its replica. One thread at a time moves it; wake(), halt(), abandon() and
/// the gate are for others.
class FollowSession {
  public:
    FollowSession(const Location& where, const FollowOptions& options, bool trl_layout,
                  std::filesystem::path scratch, nb::object on_event)
        : where_(where),
          options_(options),
          trl_layout_(trl_layout),
          scratch_(std::move(scratch)),
          on_event_(std::move(on_event)) {
        options_.run.clock = clock_;
        options_.on_event = [this](const FollowEvent& event) { return tell(event); };
    }
    ~FollowSession() {
        const Unlocked unlocked;
        shut();
    }
    FollowSession(const FollowSession&) = delete;
    FollowSession& operator=(const FollowSession&) = delete;

    void into_folder(const std::filesystem::path& folder) {
        FolderReplicaOptions options;
        options.threads = options_.threads;
        hold_replica([&] { return open_folder_replica(folder, options); });
    }

    void into_steps(const std::string& pattern, std::size_t keep, const std::string& mark) {
        const StepPattern where = value_of(StepPattern::parse(pattern));
        SnapshotReplicaOptions options;
        options.threads = options_.threads;
        options.keep = keep;
        options.marker = mark;
        hold_replica([&] { return open_snapshot_replica(where, options); });
    }

    void into_host(std::shared_ptr<HostWeights> host, bool strict) {
        if (!host->is_writable()) {
            raise(Error{ErrorKind::kInvalid, "a target must be writable"});
        }
        MemoryReplicaOptions options = memory_options();
        options.target = [host = std::move(host), strict](const Schema& schema) {
            return select_target(host, schema, strict);
        };
        options.on_adopt = [this](const Weights&, const ReplicaRecord& at) -> Result<void> {
            target_step_ = at.step;
            return {};
        };
        options.on_move = [this](const ReplicaMove& move) -> Result<void> {
            target_step_ = move.to->step;
            return {};
        };
        hold_replica([&] { return open_memory_replica(options); });
    }

    void into_code(nb::object on_adopt, nb::object on_move) {
        on_adopt_ = std::move(on_adopt);
        on_move_ = std::move(on_move);
        MemoryReplicaOptions options = memory_options();
        options.on_adopt = [this](const Weights& weights, const ReplicaRecord& at) -> Result<void> {
            const auto entered = enter();
            if (!entered) return std::unexpected(entered.error());
            return tell_python("the target", [&] {
                tell_while_it_lasts<TakenState>(
                    weights, [&](const auto& state) { on_adopt_(state, at.step); });
                target_step_ = at.step;
            });
        };
        options.on_move = [this](const ReplicaMove& move) -> Result<void> {
            const auto entered = enter();
            if (!entered) return std::unexpected(entered.error());
            return tell_python("the target", [&] {
                on_move_(ToldMove(&move).tensors(std::nullopt), move.to->step, move.back);
                target_step_ = move.to->step;
            });
        };
        // The private copy needs no gate: only the telling does.
        options.enter = nullptr;
        hold_replica([&] { return open_memory_replica(options); });
    }

    void into_shared(nb::object on_target, nb::object on_enter, nb::object on_adopt,
                     nb::object on_move) {
        on_target_ = std::move(on_target);
        on_enter_ = std::move(on_enter);
        on_adopt_ = std::move(on_adopt);
        on_move_ = std::move(on_move);
        MemoryReplicaOptions options = memory_options();
        options.keep_previous = false;
        options.target = [this](const Schema& schema) -> Result<std::shared_ptr<MutableWeights>> {
            return call_python<std::shared_ptr<MutableWeights>>(
                "the target", [&]() -> Result<std::shared_ptr<MutableWeights>> {
                    auto host =
                        nb::cast<std::shared_ptr<HostWeights>>(on_target_(schema_list(schema)));
                    return select_target(std::move(host), schema, true);
                });
        };
        // Others read that memory in processes of their own, and must be kept away meanwhile: if
        // they cannot be, nothing is written.
        options.enter = [this]() -> Result<std::shared_ptr<void>> {
            auto entered = tell_python("the target", [&] { on_enter_(); });
            if (!entered) return std::unexpected(std::move(entered).error());
            return std::shared_ptr<void>();
        };
        options.on_adopt = [this](const Weights&, const ReplicaRecord& at) {
            return tell_python("the target",
                               [&] { on_adopt_(at.step, at.seq, to_text(at.state)); });
        };
        options.on_move = [this](const ReplicaMove& move) {
            return tell_python("the target", [&] {
                tell_while_it_lasts<ToldMove>(move, [&](const auto& told) {
                    on_move_(told, move.to->step, move.to->seq, to_text(move.to->state));
                });
            });
        };
        hold_replica([&] { return open_memory_replica(options); });
    }

    /// The engines that hold the weights are asked for what a step touches.
    void into_relay(const RelayCalls& calls) {
        RelayReplicaOptions options = relay_options(calls);
        options.threads = options_.threads;
        options.scratch = scratch_;
        hold_replica([&] { return open_relay_replica(std::move(options)); });
    }

    /// Before a move: only a halt() after this ends it.
    void arm() {
        const std::scoped_lock lock(mutex_);
        stop_ = std::stop_source();
    }
    Result<FollowReport> catch_up() { return moved(&Follower::catch_up); }
    Result<FollowReport> follow() { return moved(&Follower::follow); }
    void halt() {
        {
            const std::scoped_lock lock(mutex_);
            stop_.request_stop();
        }
        clock_->wake();
    }
    void wake() { clock_->wake(); }
    bool was_halted() const { return stop_token().stop_requested(); }
    /// A thread that does not come back from its store is left behind: it changes nothing any more.
    void abandon() {
        if (replica_) replica_->take_away();
    }
    void reclaim() {
        if (replica_) replica_->give_back();
    }

    /// The step it goes back to.
    Result<std::uint64_t> step_back() {
        if (!replica_) return fail(ErrorKind::kInvalid, "this follower is closed");
        if (auto back = replica_->step_back(); !back) {
            return std::unexpected(std::move(back).error());
        }
        // What the follower remembers is not so any more; it starts from the replica's record.
        follower_.reset();
        auto record = replica_->load();
        if (!record) return std::unexpected(std::move(record).error());
        return (*record)->step;
    }

    /// Whether the whole state is what it should be; if not, the next move takes it anew.
    Result<bool> prove() {
        const Weights* weights = replica_ ? replica_->weights() : nullptr;
        if (!follower_ || weights == nullptr || follower_->at().state_seq == 0) {
            return fail(ErrorKind::kNotFound, "there is no state yet to prove; sync first");
        }
        auto digest = digest_of(*weights, options_.threads);
        if (!digest) return std::unexpected(std::move(digest).error());
        if (*digest == follower_->at().state) return true;
        follower_.reset();
        if (auto gone = replica_->discard(); !gone) {
            return std::unexpected(std::move(gone).error());
        }
        return false;
    }

    Gate& gate() { return gate_; }
    /// What the target holds, exact while the gate is closed; none before the first state.
    std::optional<std::uint64_t> target_step() const { return target_step_; }
    void shut() {
        const StopScope scope(kFarewell);
        follower_.reset();
        replica_.reset();
    }

  private:
    MemoryReplicaOptions memory_options() {
        MemoryReplicaOptions options;
        options.threads = options_.threads;
        options.scratch = scratch_;
        options.keep_previous = true;
        options.enter = [this] { return enter(); };
        return options;
    }

    template <class Open>
    void hold_replica(Open&& open) {
        replica_ = std::make_unique<RevocableReplica>(long_call(std::forward<Open>(open)));
    }

    Result<std::shared_ptr<void>> enter() {
        if (!gate_.close()) return fail(ErrorKind::kUnavailable, "stopped as asked");
        return std::shared_ptr<void>(&gate_, [](Gate* gate) { gate->open(); });
    }

    std::stop_token stop_token() const {
        const std::scoped_lock lock(mutex_);
        return stop_.get_token();
    }

    Result<FollowReport> moved(Result<FollowReport> (Follower::*by)()) {
        const StopScope scope(stop_token());
        if (auto opened = open(); !opened) return std::unexpected(std::move(opened).error());
        return ((*follower_).*by)();
    }

    Result<void> open() {
        if (follower_) return {};
        if (!replica_) return fail(ErrorKind::kInvalid, "this follower is closed");
        auto opened = trl_layout_ ? open_trl_follower(where_, *replica_, options_)
                                  : Follower::open(where_, *replica_, options_);
        if (!opened) return std::unexpected(std::move(opened).error());
        follower_.emplace(std::move(*opened));
        return {};
    }

    Result<void> tell(const FollowEvent& event) {
        // Where the target stands is told in any case.
        const bool news =
            event.kind == FollowEvent::Kind::kApplied || event.kind == FollowEvent::Kind::kJoined;
        if (stopped() && !news) return fail(ErrorKind::kInternal, "halted");
        return tell_python("on_step", [&] { on_event_(event); });
    }

    Location where_;
    FollowOptions options_;
    bool trl_layout_;
    std::filesystem::path scratch_;
    nb::object on_event_, on_target_, on_enter_, on_adopt_, on_move_;
    std::shared_ptr<WakingClock> clock_ = std::make_shared<WakingClock>();
    Gate gate_;
    std::optional<std::uint64_t> target_step_;  // written and read with the gate closed
    mutable std::mutex mutex_;                  // of stop_
    std::stop_source stop_;
    std::unique_ptr<RevocableReplica> replica_;
    std::optional<Follower> follower_;
};

}  // namespace

void bind_following(nb::module_& module) {
    bind_follow_reports(module);
    nb::class_<FollowSession>(module, "FollowSession", "The C++ side of wisp.Follower.")
        .def(
            "__init__",
            [](FollowSession* self, const Location& where, nb::object on_event, const Trust& trust,
               const OptionalPath& base, const OptionalPath& scratch, const std::string& replica_id,
               double poll, double heartbeat, double max_staleness, bool accept_rewind,
               unsigned threads, unsigned parallel_fetches, bool trl_layout) {
                const auto milliseconds = [](double seconds) {
                    return Milliseconds(static_cast<std::int64_t>(seconds * 1000));
                };
                FollowOptions options;
                options.run = run_options(trust);
                options.base = base;
                options.replica_id = replica_id;
                options.poll = milliseconds(poll);
                options.heartbeat = milliseconds(heartbeat);
                options.max_staleness = milliseconds(max_staleness);
                options.accept_rewind = accept_rewind;
                options.threads = threads;
                options.parallel_fetches = parallel_fetches;
                new (self)
                    FollowSession(where, options, trl_layout,
                                  scratch.value_or(std::filesystem::path()), std::move(on_event));
            },
            "where"_a, "on_event"_a, "trust"_a, "base"_a.none(), "scratch"_a.none(), "replica_id"_a,
            "poll"_a, "heartbeat"_a, "max_staleness"_a, "accept_rewind"_a, "threads"_a,
            "parallel_fetches"_a, "trl_layout"_a = false)
        .def("into_folder", &FollowSession::into_folder, "folder"_a)
        .def("into_steps", &FollowSession::into_steps, "pattern"_a, "keep"_a, "mark"_a,
             "A folder for each step: see wisp/followed_folders.hpp.")
        .def("into_host", &FollowSession::into_host, "host"_a, "strict"_a)
        .def("into_code", &FollowSession::into_code, "on_adopt"_a, "on_move"_a)
        .def("into_shared", &FollowSession::into_shared, "on_target"_a, "on_enter"_a, "on_adopt"_a,
             "on_move"_a,
             "The replica is the memory that on_target(schema) answers with; on_enter() is called "
             "before it is written to.")
        .def(
            "into_relay",
            [](FollowSession& self, nb::object on_room, nb::object on_ask, nb::object on_asked,
               nb::object on_adopt, nb::object on_move, nb::object on_held, nb::object on_held_of,
               nb::object on_hand_over) {
                self.into_relay({std::move(on_room), std::move(on_ask), std::move(on_asked),
                                 std::move(on_adopt), std::move(on_move), std::move(on_held),
                                 std::move(on_held_of), std::move(on_hand_over)});
            },
            "on_room"_a, "on_ask"_a, "on_asked"_a, "on_adopt"_a, "on_move"_a, "on_held"_a,
            "on_held_of"_a, "on_hand_over"_a,
            "There is no replica: on_room([(tensor, words), …]) answers with memory, and "
            "on_ask(state) fills it. on_held() says what is held of the tensors, None: all; "
            "on_held_of(schema) the same before a whole state is fetched. on_hand_over(files, "
            "step, "
            "seq, state) says whether these deltas are decoded elsewhere.")
        .def("catch_up",
             [](FollowSession& self) { return long_call([&] { return self.catch_up(); }); })
        .def("follow",
             [](FollowSession& self) -> std::optional<FollowReport> {
                 std::optional<Result<FollowReport>> report;
                 run_unlocked([&] { report.emplace(self.follow()); });
                 if (!*report && self.was_halted()) return std::nullopt;
                 return value_of(std::move(*report));
             })
        .def("arm", &FollowSession::arm)
        .def("halt", &FollowSession::halt)
        .def("abandon",
             [](FollowSession& self) {
                 // What the thread left behind holds is never given back.
                 nb::set_leak_warnings(false);
                 run_unlocked([&] { self.abandon(); });
             })
        .def("reclaim", [](FollowSession& self) { run_unlocked([&] { self.reclaim(); }); })
        .def("wake", &FollowSession::wake)
        .def("step_back",
             [](FollowSession& self) { return long_call([&] { return self.step_back(); }); })
        .def("prove", [](FollowSession& self) { return long_call([&] { return self.prove(); }); })
        .def(
            "hold",
            [](FollowSession& self) {
                bool closed = false;
                try {
                    run_unlocked([&] { closed = self.gate().close(); });
                } catch (const nb::python_error&) {
                    // Ctrl-C: the caller does not hold it.
                    if (closed) self.gate().open();
                    throw;
                }
                return self.target_step();
            },
            "Keeps moves away; the step that the target holds meanwhile.")
        .def("release", [](FollowSession& self) { self.gate().open(); })
        .def("shut", [](FollowSession& self) { run_unlocked([&] { self.shut(); }); });
}

}  // namespace wisp::python
