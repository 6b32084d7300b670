// The life of a trainer whose weights are spread over ranks.
#include <fmt/format.h>

#include <system_error>

#include "base/try.hpp"
#include "sim/actors.hpp"
#include "sim/sim_ranks.hpp"
#include "sim/writer_actor.hpp"
#include "wisp/sharded_publisher.hpp"

namespace wisp::sim {
namespace {

class ShardedActor {
  public:
    ShardedActor(World& world, Actor& actor, std::string prefix)
        : world_(world),
          actor_(actor),
          prefix_(std::move(prefix)),
          random_(world.fork_random()),
          door_(world.open_door(actor, prefix_)),
          steps_left_(4 + random_.below(16)),
          pause_ms_(random_.chance(0.3) ? 10'000 : 1'000) {
        actor_.folder = world_.folder() / actor_.name;
        std::filesystem::create_directories(actor_.folder);
        actor_.keeps_synced = true;
        options_.anchor_every = random_.below(5);
        options_.threads = options_.parallel_uploads = 1;
    }

    void session() {
        for (bool again = true; again;) again = write();
    }

  private:
    bool working() const { return steps_left_ > 0 && world_.weather() == Weather::kStorm; }

    void pause() {
        world_.scheduler().sleep(actor_, static_cast<std::int64_t>(random_.below(pause_ms_)));
    }

    /// False: the actor is through.
    bool failed(const Error& error) {
        world_.tell(actor_, fmt::format("fails: {}: {}", name_of(error.kind), error.text));
        const ErrorKind kind = error.kind;
        if (kind == ErrorKind::kFenced) {
            fenced_ = true;
            if (world_.ledger().may_be_fenced(prefix_, door_.store->author())) {
                options_.take_over = random_.chance(0.5);
                return working() && options_.take_over;
            }
        } else if (kind == ErrorKind::kDenied && world_.plan().is_signed) {
            fenced_ = true;  // by the clock: it starts again with the newest certificate
            options_.take_over = random_.chance(0.5);
            return working();
        } else if (kind == ErrorKind::kConflict || may_fail(world_.plan(), kind, began_)) {
            return working();
        }
        world_.blame(
            fmt::format("{} may not fail with {}: {}", actor_.name, name_of(kind), error.text));
        return false;
    }

    /// One start of the whole group, with any number of ranks.
    bool write() {
        options_.run = world_.run_options(door_);
        options_.signer = world_.signer();
        began_ = world_.weather();
        fenced_ = false;
        auto publisher = ShardedPublisher::open(door_.run, actor_.folder / "rank0", options_);
        if (!publisher) {
            if (!failed(publisher.error())) return false;
            pause();
            return true;
        }
        options_.take_over = false;
        SimRanks ranks(world_, actor_, door_.run, 1 + random_.below(4), random_);
        begin(*publisher);
        while (working()) {
            if (random_.chance(0.06)) return true;  // a restart, with another world
            began_ = world_.weather();
            if (const auto went = publish(*publisher, ranks); !went) {
                if (!failed(went.error())) return false;
                if (fenced_) return true;
            }
            pause();
        }
        return false;
    }

    /// The trainer goes on from the newest state, as from its checkpoint.
    void begin(const ShardedPublisher& publisher) {
        const Model* newest = world_.bank().find(publisher.at().state);
        if (newest != nullptr) model_ = *newest;
        if (!model_) model_ = make_model(0, random_);
        step_ = publisher.next_step();
    }

    void train(const ShardedPublisher& publisher) {
        if (random_.chance(0.03)) {
            model_ = make_model(++variant_, random_);
        } else if (!random_.chance(0.1)) {
            model_->train(random_.chance(0.1) ? 0.9 : 0.05, random_);
        }
        step_ = random_.chance(0.05) ? step_ / 2 : std::max(step_ + 1, publisher.next_step());
        world_.bank().remember(*model_);
    }

    Result<void> publish(ShardedPublisher& publisher, SimRanks& ranks) {
        --steps_left_;
        train(publisher);
        const World::Busy busy(world_, actor_);
        const Schema& schema = model_->schema();
        const std::optional<StateDigest> landing = publisher.result();
        WISP_ASSIGN(const ShardCall call, publisher.call(schema, step_, random_.chance(0.05)));
        WISP_TRY(ranks.reconcile(landing, publisher.at().state));
        ranks.take_schema(schema);
        WISP_ASSIGN(const auto manifests, ranks.deliver(call, *model_));
        WISP_ASSIGN(const PublishReport report, publisher.commit(call, schema, manifests));
        check(report);
        WISP_TRY(ranks.advance(report.state));
        const auto due = publisher.anchor_call();
        if (!due) return {};
        WISP_ASSIGN(const auto whole, ranks.deliver(*due, *model_));
        WISP_TRY(publisher.commit_anchor(*due, schema, whole));
        return {};
    }

    void check(const PublishReport& report) {
        world_.tell(actor_, fmt::format("published step {} as commit {} ({})", step_, report.seq,
                                        report.kind_text()));
        const RunLedger* ledger = world_.ledger().find(prefix_);
        const auto row = ledger->rows.find(report.seq);
        const bool right = row != ledger->rows.end() && row->second.commit.makes_state() &&
                           world_.bank().holds(*model_, row->second.commit.state.digest) &&
                           row->second.commit.state.step == step_ &&
                           (report.present || row->second.author == door_.store->author());
        if (right) return;
        world_.blame(fmt::format("{} believes that step {} is commit {}, which is another's",
                                 actor_.name, step_, report.seq));
    }

    World& world_;
    Actor& actor_;
    std::string prefix_;
    Random random_;
    World::Door door_;
    std::uint64_t steps_left_;
    std::uint64_t pause_ms_;
    WriterOptions options_;
    std::optional<Model> model_;
    std::uint64_t step_ = 0;
    unsigned variant_ = 0;
    Weather began_ = Weather::kStorm;
    bool fenced_ = false;
};

}  // namespace

void add_sharded_trainer(World& world, std::string name, std::string prefix,
                         std::int64_t starts_in_ms) {
    add_writer<ShardedActor>(world, std::move(name), std::move(prefix), starts_in_ms);
}

}  // namespace wisp::sim
