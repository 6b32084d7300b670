// The last words of a simulation, spoken over the true store, without faults.
#include <fmt/format.h>

#include <map>

#include "follow/replica_updater.hpp"
#include "sim/world.hpp"
#include "wisp/publisher.hpp"

namespace wisp::sim {
namespace {

constexpr std::uint64_t kClosingSteps = 20'000;
constexpr std::uint64_t kCalmRequests = 2'000;
constexpr std::size_t kSampled = 4;

}  // namespace

void World::publish_once_more(const std::string& prefix) {
    truth_->author = "closer of " + prefix;
    MemoryReplicaOptions memory;
    memory.threads = 1;
    memory.scratch = folder_ / "closer";
    auto baseline = open_memory_replica(memory);
    PublishOptions options;
    options.run.clock = std::make_shared<StoreClock>(scheduler_);
    options.run.seed = random_.next() | 1;
    options.threads = options.parallel_uploads = 1;
    options.take_over = true;
    options.signer = signer();
    auto publisher = Publisher::open(true_run(prefix), **baseline, options);
    if (!publisher) {
        return blame(
            fmt::format("nobody can open {} any more: {}", prefix, publisher.error().text));
    }
    const Model* held = bank_.find(publisher->at().state);
    Model model = held != nullptr ? *held : make_model(0, random_);
    model.train(0.05, random_);
    bank_.remember(model);
    const auto report = publisher->publish(model, publisher->next_step());
    if (!report) {
        blame(fmt::format("nobody can publish to {} any more: {}", prefix, report.error().text));
    }
}

void World::check_retained(const std::string& prefix) {
    const RunLedger* ledger = this->ledger().find(prefix);
    RunOptions options;
    options.clock = std::make_shared<StoreClock>(scheduler_);
    options.seed = 1;
    const auto log = CommitLog::open(true_run(prefix), options);
    if (!log) return blame(log.error().text);
    const auto head = log->head();
    if (!head || !*head) return blame("the head cannot be read");
    if ((*head)->commit.seq != ledger->head()->commit.seq) return blame("the head is another");
    std::vector<StateName> retained;
    for (const auto& [seq, row] : ledger->rows) {
        if (seq >= ledger->floor() && !row.abandoned && row.commit.makes_state()) {
            retained.push_back(row.commit.state);
        }
    }
    for (std::size_t i = 0; i < kSampled && !retained.empty(); ++i) {
        const StateName target = retained[random_.below(retained.size())];
        MemoryReplicaOptions memory;
        memory.threads = 1;
        memory.scratch = folder_ / "reader";
        auto replica = open_memory_replica(memory);
        Lineage history(*log, **head);
        ReplicaRecord at;
        at.run = log->run();
        ReplicaUpdaterOptions updater_options;
        updater_options.threads = updater_options.parallel_fetches = 1;
        ReplicaUpdater updater(*log, **replica, at, updater_options);
        if (const auto went = updater.go(history, target); !went) {
            return blame(
                fmt::format("commit {} of {} is retained (floor {}) but cannot be read: {}",
                            target.seq, prefix, ledger->floor(), went.error().text));
        }
        if ((*replica)->weights() == nullptr ||
            !bank_.holds(*(*replica)->weights(), target.digest)) {
            return blame(fmt::format("commit {} of {} reads as another state", target.seq, prefix));
        }
    }
}

/// Nobody is wedged, and nobody hammers: with a healthy store, few requests lead to rest.
void World::check_requests() {
    std::map<const Actor*, std::uint64_t> requests;
    for (const auto& door : doors_) requests[&door->actor()] += door->requests();
    for (const auto& [actor, count] : requests) {
        most_requests_ = std::max(most_requests_, count);
        if (count <= kCalmRequests) continue;
        blame(fmt::format("{} made {} requests after the storm", actor->name, count));
    }
}

void World::close() {
    for (const std::string prefix : {"runs/a", "runs/b"}) {
        const RunLedger* run = ledger().find(prefix);
        if (run == nullptr || run->run.empty()) continue;
        // A branch that nobody completed has no first commit, and nobody may give it one.
        if (prefix == "runs/b" && run->head() == nullptr) continue;
        publish_once_more(prefix);
        if (!over()) check_retained(prefix);
    }
    weather_ = Weather::kClosing;
    const auto ended = [&] { return over(); };
    if (!scheduler_.run(ended, kClosingSteps)) blame("the replicas do not come to rest");
    check_requests();
}

}  // namespace wisp::sim
