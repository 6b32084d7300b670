#include "sim/world.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "sim/actors.hpp"
#include "store/retry_store.hpp"

namespace wisp::sim {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kRestSteps = 60'000;

fs::path remains_of(const fs::path& folder) {
    return folder.string() + ".remains";
}

}  // namespace

World::World(std::uint64_t seed, fs::path folder)
    : seed_(seed),
      random_(seed ^ 0x5EED),
      plan_(make_plan(seed)),
      folder_(std::move(folder)),
      scheduler_(random_.next(), plan_.style) {
    truth_ = std::make_shared<TrueStore>(std::make_shared<StoreClock>(scheduler_), bank_);
    history_ = std::make_shared<ObjectHistory>(
        plan_.faults.stale_read > 0 || plan_.faults.stale_list > 0 ? plan_.faults.stale_operations
                                                                   : 0);
    if (plan_.single_writer) ledger().expect_overwrites();
    if (plan_.is_signed) {
        keys_.emplace(seed ^ 0xCE27, scheduler_.now_ms());
        ledger().expect_signatures(keys_->root());
    }
    fs::create_directories(folder_);
    scheduler_.on_kill = [this](Actor& actor) { die(actor); };
    scheduler_.leap_room = [this] { return leap_room(); };
    local_.before = [this](LocalCall call) { return before_local_call(call); };
    local_.synced = [this](int descriptor) {
        const Actor* actor = scheduler_.running();
        if (plan_.power_cuts && actor != nullptr && !actor->dead) disk_.synced(descriptor);
    };
    watch_local_files(&local_);
}

void World::die(Actor& actor) {
    if (actor.folder.empty()) return tell(actor, "is killed");
    std::error_code ignored;
    if (plan_.power_cuts && actor.keeps_synced && random_.chance(0.5)) {
        tell(actor, "loses its power");
        disk_.cut_power(actor.folder, remains_of(actor.folder), random_);
    } else {
        tell(actor, "is killed");
        fs::copy(actor.folder, remains_of(actor.folder), fs::copy_options::recursive, ignored);
    }
}

int World::before_local_call(LocalCall call) {
    Actor* actor = scheduler_.running();
    if (actor == nullptr) return 0;
    // Nothing can be thrown through the C library: the actor goes on as a ghost.
    scheduler_.point(*actor, false);
    if (actor->dead || plan_.full_disks == 0 || weather_ != Weather::kStorm) return 0;
    if (actor->full_disk == 0 && random_.chance(plan_.full_disks)) {
        actor->full_disk =
            1 + static_cast<unsigned>(random_.below(std::uint64_t{1} << random_.below(6)));
        tell(*actor, fmt::format("has a full disk at local call {}", static_cast<int>(call)));
    }
    if (actor->full_disk == 0) return 0;
    --actor->full_disk;
    return ENOSPC;
}

std::int64_t World::leap_room() const {
    std::int64_t since = late_.oldest_ms().value_or(scheduler_.now_ms());
    for (const auto& actor : scheduler_.actors()) {
        if (actor->busy_since_ms != 0 && !actor->dead)
            since = std::min(since, actor->busy_since_ms);
    }
    return since + plan_.orphan_age_ms / 2 - scheduler_.now_ms();
}

std::int64_t World::oldest_doing_ms() const {
    std::int64_t since = late_.oldest_ms().value_or(scheduler_.now_ms());
    for (const auto& actor : scheduler_.actors()) {
        if (actor->writes && !actor->fiber->done()) since = std::min(since, actor->last_ran_ms);
    }
    return since;
}

World::~World() {
    scheduler_.end_all();
    watch_local_files(nullptr);
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

void World::blame(std::string problem) {
    if (problem_.empty() && !scheduler_.ending()) problem_ = std::move(problem);
}

Location World::true_run(const std::string& prefix) const {
    return {truth_, prefix, prefix};
}

World::Door World::open_door(Actor& actor, const std::string& prefix) {
    Door door;
    door.clock = std::make_shared<VirtualClock>(scheduler_, actor);
    auto author = std::make_shared<std::string>(actor.name);
    auto faulty = std::make_shared<FaultStore>(
        std::make_shared<NamedStore>(truth_, author), plan_.faults,
        std::make_shared<KindFaults>(plan_.faults, plan_.rot, random_.next()), history_,
        door.clock);
    faults_.push_back(faulty);
    SimStoreParts parts{truth_,
                        author,
                        faulty,
                        &scheduler_,
                        &trace_,
                        &late_,
                        plan_.late_writes,
                        plan_.late_removes};
    door.store = std::make_shared<SimStore>(std::move(parts), actor, random_.next());
    if (weather_ != Weather::kStorm) {
        faulty->heal();
        door.store->heal();
    }
    doors_.push_back(door.store);
    door.run = {door.store, prefix, prefix};
    if (plan_.retries) {
        RetryPlan retries;
        retries.tries = 3;
        door.run.store =
            std::make_shared<RetryStore>(door.store, retries, door.clock, random_.next());
    }
    return door;
}

Observer World::observer(Actor& actor, const std::string& prefix) {
    return {&scheduler_,
            &ledger(),
            &bank_,
            prefix,
            [this](std::string problem) { blame(std::move(problem)); },
            [this, &actor](const std::string& what) { tell(actor, what); }};
}

RunOptions World::run_options(const Door& door) {
    RunOptions options;
    options.clock = door.clock;
    options.seed = random_.next() | 1;
    if (keys_ && options.seed % 8 < 4) options.trust.keys = {keys_->root()};
    return options;
}

std::optional<RunSigner> World::signer() const {
    return keys_ ? std::optional(keys_->newest()) : std::nullopt;
}

void World::revive(Actor& actor) {
    const fs::path remains = remains_of(actor.folder);
    std::error_code ignored;
    if (!actor.folder.empty() && fs::exists(remains, ignored)) {
        fs::remove_all(actor.folder, ignored);
        fs::rename(remains, actor.folder, ignored);
        if (plan_.power_cuts) disk_.sync_all(actor.folder);
    }
    // Not before: its disk may be full, and what is put back here is no write of its own.
    actor.dead = false;
}

void World::live(Actor& actor, const std::function<void()>& session) {
    bool killed = false;
    do {
        if (!killed && weather_ == Weather::kStorm && random_.chance(plan_.kills)) {
            actor.kill_in = 1 + random_.below(std::uint64_t{1} << (4 + random_.below(7)));
        }
        try {
            if (killed) {
                scheduler_.sleep(actor, static_cast<std::int64_t>(random_.below(20'000)));
                killed = false;
                tell(actor, "is started again");
                if (weather_ == Weather::kStorm && random_.chance(plan_.kills)) {
                    actor.kill_in = 1 + random_.below(std::uint64_t{1} << (4 + random_.below(7)));
                }
            }
            session();
        } catch (const Killed&) {
            killed = true;
        }
        if (scheduler_.ending()) return;
        if (killed) revive(actor);
    } while (killed);
}

void World::damage(const Actor& actor, const fs::path& checkpoint) {
    std::fstream file(checkpoint, std::ios::in | std::ios::out | std::ios::binary);
    if (!file) return;
    // The header is JSON and ends where the weights begin; the last bytes are always weights.
    file.seekg(-1 - static_cast<int>(random_.below(60)), std::ios::end);
    const auto at = file.tellg();
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ (1 << random_.below(8))));
    tell(actor, "has a bit fall over on its disk");
}

void World::people() {
    const auto later = [&](std::uint64_t most) {
        return static_cast<std::int64_t>(random_.below(most));
    };
    for (unsigned i = 0; i < plan_.trainers; ++i) {
        add_trainer(*this, fmt::format("trainer{}", i), "runs/a", i == 0 ? 0 : later(20'000));
    }
    if (plan_.sharded) add_sharded_trainer(*this, "sharded", "runs/a", later(10'000));
    if (plan_.asynchronous) add_async_trainer(*this, "background", "runs/a", later(10'000));
    for (unsigned i = 0; i < plan_.replicas; ++i) {
        add_replica(*this, fmt::format("replica{}", i), "runs/a", i == 0 ? 0 : later(30'000));
    }
    if (plan_.branch) add_brancher(*this, "runs/a", "runs/b", later(20'000));
    if (plan_.compactor) add_compactor(*this, "compactor", "runs/a", later(10'000));
    if (plan_.retention) add_retention(*this, "retention", "runs/a", later(10'000));
    if (plan_.attacker) add_attacker(*this, "runs/a", later(10'000));
    if (plan_.deletes) add_lifecycle(*this, "runs/a", later(20'000));
}

void World::calm_down() {
    weather_ = Weather::kCalm;
    if (keys_) keys_->renew_for_good(scheduler_.now_ms());
    for (const auto& faulty : faults_) faulty->heal();
    for (const auto& door : doors_) door->heal();
    late_.arrive(~std::uint64_t{0});
    // The newest damage first.
    for (auto mend = mends_.rbegin(); mend != mends_.rend(); ++mend) (*mend)();
    scheduler_.calm_down();
}

Verdict World::run() {
    truth_->author = "founder";
    InitOptions init;
    init.run.clock = std::make_shared<StoreClock>(scheduler_);
    init.run.seed = random_.next() | 1;
    init.signer = signer();
    init.codec = seed_ % 2 == 0 ? Codec::kSwift : Codec::kCompact;
    if (keys_) init.roots = {keys_->root()};
    if (plan_.single_writer) init.mode = CommitMode::kSingleWriter;
    if (const auto made = init_run(true_run("runs/a"), init); !made) blame(made.error().text);
    people();
    scheduler_.run(
        [&] {
            late_.arrive(scheduler_.steps());
            if (keys_) keys_->look_at_clock(scheduler_.now_ms());
            return over() || scheduler_.steps() >= plan_.storm_steps;
        },
        plan_.storm_steps + 1);
    if (!over()) {
        calm_down();
        const auto rested = [&] {
            if (over()) return true;
            for (const auto& actor : scheduler_.actors()) {
                if (actor->writes && !actor->fiber->done()) return false;
            }
            return true;
        };
        if (!scheduler_.run(rested, kRestSteps)) blame("the writers do not come to rest");
    }
    if (!over()) close();
    Verdict verdict;
    verdict.problem = problem_.empty() ? ledger().problem() : problem_;
    verdict.passed = verdict.problem.empty();
    verdict.operations = trace_.counted();
    verdict.fingerprint = trace_.fingerprint();
    verdict.moves = moves_;
    verdict.most_requests = most_requests_;
    if (const RunLedger* run = ledger().find("runs/a")) verdict.commits = run->rows.size();
    return verdict;
}

}  // namespace wisp::sim
