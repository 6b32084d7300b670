// A lifecycle rule, or a hand that slipped: one commit of the log is gone.
#include <fmt/format.h>

#include "log/run_keys.hpp"
#include "sim/actors.hpp"

namespace wisp::sim {
namespace {

class LifecycleActor {
  public:
    LifecycleActor(World& world, Actor& actor, std::string prefix)
        : world_(world), actor_(actor), prefix_(std::move(prefix)), random_(world.fork_random()) {}

    void session() {
        while (world_.weather() == Weather::kStorm && !lost_) {
            lose_one();
            world_.scheduler().sleep(actor_, static_cast<std::int64_t>(random_.below(5'000)));
        }
        if (!lost_ || !world_.plan().restores) return;
        world_.scheduler().sleep(actor_, static_cast<std::int64_t>(random_.below(60'000)));
        if (world_.weather() == Weather::kStorm) restore();
    }

  private:
    static constexpr std::uint64_t kYoung = 6;  // so many of the newest stay
    // Rules count days: nothing is taken that a request under way, or a writer that has stood still
    // since, could still be about. One that looked within the last ten seconds does not look again.
    static constexpr std::int64_t kYoungMs = 15'000;

    void lose_one() {
        const RunLedger* ledger = world_.ledger().find(prefix_);
        // Rules of age take old ones: nobody is still about to write there.
        if (ledger == nullptr || ledger->rows.size() < 2 * kYoung) return;
        const std::uint64_t first = ledger->rows.begin()->first;
        const std::uint64_t seq =
            first + random_.below(ledger->head()->commit.seq - kYoung - first);
        if (ledger->rows.at(seq).buried) return;
        seq_ = seq;
        const auto info = world_.truth().head(key());
        if (!info || world_.oldest_doing_ms() < info->modified_ms + kYoungMs) return;
        bytes_ = world_.truth().lose(key());
        world_.ledger().lose(prefix_, seq_, true);
        world_.tell(actor_, fmt::format("removes commit {}", seq_));
        lost_ = true;
        world_.mend_later(
            [&world = world_, prefix = prefix_, seq = seq_, key = key(), bytes = bytes_] {
                world.truth().bring_back(key, bytes);
                world.ledger().lose(prefix, seq, false);
            });
    }

    void restore() {
        world_.truth().bring_back(key(), bytes_);
        world_.ledger().lose(prefix_, seq_, false);
        world_.tell(actor_, fmt::format("puts commit {} back", seq_));
    }

    std::string key() const { return prefix_ + "/" + commit_key(seq_); }

    World& world_;
    Actor& actor_;
    std::string prefix_;
    Random random_;
    std::uint64_t seq_ = 0;
    Bytes bytes_;
    bool lost_ = false;
};

}  // namespace

void add_lifecycle(World& world, std::string prefix, std::int64_t starts_in_ms) {
    world.scheduler().add(
        "lifecycle",
        [&world, prefix = std::move(prefix)](Actor& actor) {
            LifecycleActor lifecycle(world, actor, prefix);
            world.live(actor, [&] { lifecycle.session(); });
        },
        starts_in_ms);
}

}  // namespace wisp::sim
