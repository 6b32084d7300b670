// Compaction, retention, and a reader of the whole run.
#include <fmt/format.h>

#include "sim/actors.hpp"
#include "sim/writer_actor.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/maintenance.hpp"

namespace wisp::sim {
namespace {

class MaintenanceActor {
  public:
    MaintenanceActor(World& world, Actor& actor, std::string prefix)
        : world_(world),
          actor_(actor),
          prefix_(std::move(prefix)),
          random_(world.fork_random()),
          door_(world.open_door(actor, prefix_)),
          pause_ms_(random_.chance(0.5) ? 2'000 : 15'000) {
        actor_.folder = world_.folder() / actor_.name;
        std::filesystem::create_directories(actor_.folder);
        actor_.keeps_synced = true;
    }
    virtual ~MaintenanceActor() = default;

    void session() {
        while (world_.weather() == Weather::kStorm) {
            const Weather began = world_.weather();
            const auto done = work();
            if (!done) {
                const ErrorKind kind = done.error().kind;
                world_.tell(actor_, fmt::format("fails: {}: {}", name_of(kind), done.error().text));
                if (!may_fail(world_.plan(), kind, began) && !may_stumble(kind)) {
                    return world_.blame(fmt::format("{} may not fail with {}: {}", actor_.name,
                                                    name_of(kind), done.error().text));
                }
            }
            world_.scheduler().sleep(actor_, static_cast<std::int64_t>(random_.below(pause_ms_)));
        }
    }

  protected:
    virtual Result<void> work() = 0;
    virtual bool may_stumble(ErrorKind) const { return false; }
    MaintenanceOptions options() {
        MaintenanceOptions options;
        options.run = world_.run_options(door_);
        options.signer = world_.signer();
        options.work = actor_.folder;
        options.threads = options.parallel = 1;
        return options;
    }

    World& world_;
    Actor& actor_;
    std::string prefix_;
    Random random_;
    World::Door door_;
    std::uint64_t pause_ms_;
};

class CompactorActor : public MaintenanceActor {
  public:
    using MaintenanceActor::MaintenanceActor;

  private:
    Result<void> work() override {
        if (random_.chance(0.2)) return read_back();
        const World::Busy busy(world_, actor_);
        const auto report = compact_run(door_.run, options());
        if (!report) return std::unexpected(report.error());
        world_.tell(actor_, fmt::format("merged {}", report->merged));
        return {};
    }

    /// Any step that can be exported is the step that was handed over.
    Result<void> read_back() {
        const auto output = actor_.folder / "export";
        std::error_code ignored;
        std::filesystem::remove_all(output, ignored);
        const auto report = export_step(door_.run, std::nullopt, output, options());
        if (!report) {
            if (report.error().kind == ErrorKind::kNotFound) return {};
            return std::unexpected(report.error());
        }
        const auto checkpoint = Checkpoint::open(output);
        if (!checkpoint || !world_.bank().holds(*checkpoint, report->state)) {
            world_.blame(fmt::format("step {} is exported as something else", report->step));
        }
        return {};
    }
};

class RetentionActor : public MaintenanceActor {
  public:
    RetentionActor(World& world, Actor& actor, std::string prefix)
        : MaintenanceActor(world, actor, std::move(prefix)) {
        retain_.keep_anchors = 1 + random_.below(3);
        retain_.grace = Milliseconds(random_.chance(0.4) ? 0 : random_.below(10'000));
        retain_.orphan_age = Milliseconds(world.plan().orphan_age_ms);
    }

  private:
    Result<void> work() override {
        retain_.maintenance = options();
        retain_.dry_run = random_.chance(0.1);
        const auto report = retain_run(door_.run, retain_);
        if (!report) return std::unexpected(report.error());
        world_.tell(actor_, fmt::format("floor {}, removed {}, buried {}", report->floor_seq,
                                        report->removed_objects, report->buried_commits));
        return {};
    }

    /// It alone reads down to what is buried, and takes nothing but a tombstone for one.
    bool may_stumble(ErrorKind kind) const override {
        return world_.plan().attacker && world_.weather() == Weather::kStorm &&
               (kind == ErrorKind::kCorrupt || kind == ErrorKind::kForked);
    }

    RetainOptions retain_;
};

}  // namespace

void add_compactor(World& world, std::string name, std::string prefix, std::int64_t starts_in_ms) {
    add_writer<CompactorActor>(world, std::move(name), std::move(prefix), starts_in_ms);
}

void add_retention(World& world, std::string name, std::string prefix, std::int64_t starts_in_ms) {
    add_writer<RetentionActor>(world, std::move(name), std::move(prefix), starts_in_ms);
}

}  // namespace wisp::sim
