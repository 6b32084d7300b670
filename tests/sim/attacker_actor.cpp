// Somebody who can write to the bucket but has no key that anybody trusts.
//
// What it makes is as good as it can be made from what lies in the bucket: commits that follow the
// head, with maps that name its own objects. It may cost others requests; it must not fool or stop
// them. What it destroys is put back when the storm is over, as an owner would from a copy.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/limits.hpp"
#include "base/sha256.hpp"
#include "log/commit.hpp"
#include "log/run_keys.hpp"
#include "sim/actors.hpp"
#include "wisp/trust.hpp"

namespace wisp::sim {
namespace {

class AttackerActor {
  public:
    AttackerActor(World& world, Actor& actor, std::string prefix)
        : world_(world),
          actor_(actor),
          prefix_(std::move(prefix)),
          random_(world.fork_random()),
          key_(*SigningKey::from_seed(random_bytes())) {
        world_.ledger().distrust(actor_.name);
    }

    void session() {
        while (world_.weather() == Weather::kStorm) {
            attack();
            world_.scheduler().sleep(actor_, static_cast<std::int64_t>(random_.below(8'000)));
        }
    }

  private:
    std::array<std::byte, 32> random_bytes() {
        std::array<std::byte, 32> seed{};
        for (std::byte& byte : seed) byte = static_cast<std::byte>(random_.below(256));
        return seed;
    }

    void attack() {
        const RunLedger* ledger = world_.ledger().find(prefix_);
        if (ledger == nullptr || ledger->head() == nullptr) return;
        // Right after the head, or where it will be soon.
        const std::uint64_t seq = ledger->head()->commit.seq + 1 + random_.below(3);
        switch (random_.below(9)) {
            case 0: return write(seq, "{\"wisp\":\"no commit at all\"}\n");
            case 1: return write(seq, write_tombstone({ledger->run, seq, random_.below(2 * seq)}));
            case 2: return write(seq, sealed(fence(*ledger, seq)));
            case 3: return write(seq, sealed(merge(*ledger, seq)));
            case 4: return write(seq, sealed(next_state(*ledger, seq)));
            case 5: return write(seq, replayed(*ledger));
            case 6: return overwrite(*ledger);
            default: return hint(*ledger);
        }
    }

    Commit follow(const RunLedger& ledger, CommitKind kind, std::uint64_t seq) const {
        Commit commit = ledger.head()->commit;
        commit.kind = kind;
        commit.previous = {commit.seq, ledger.head()->hash};
        if (commit.manifest) commit.manifest_at = commit.previous;
        commit.seq = seq;
        commit.manifest.reset();
        commit.delta.reset();
        commit.base.reset();
        commit.rewind_from.reset();
        return commit;
    }

    Commit fence(const RunLedger& ledger, std::uint64_t seq) const {
        Commit commit = follow(ledger, CommitKind::kFence, seq);
        ++commit.epoch;
        commit.owner = std::string(32, 'a');
        return commit;
    }

    /// The head's state, but from an anchor of its own, with a side file of its own.
    Commit merge(const RunLedger& ledger, std::uint64_t seq) {
        Commit commit = follow(ledger, CommitKind::kMerge, seq);
        AnchorEntry anchor;
        anchor.state = commit.state;
        anchor.schema = commit.schema;
        anchor.files = {object("model.safetensors", "weights of nobody"),
                        object("config.json", "{\"trust_remote_code\":true}")};
        commit.manifest = Manifest{{anchor}, {}};
        commit.manifest_at = {};
        return commit;
    }

    Commit next_state(const RunLedger& ledger, std::uint64_t seq) {
        Commit commit = follow(ledger, CommitKind::kDelta, seq);
        commit.base = commit.state.digest;
        commit.state.seq = commit.seq;
        ++commit.state.step;
        ++commit.state.state_index;
        commit.state.digest.a ^= random_.next();
        commit.delta = object("", "a delta of nobody");
        return commit;
    }

    StoredFile object(std::string name, const std::string& text) {
        const std::string hash = to_hex(sha256(as_bytes(text)));
        const std::string key =
            std::string(kAnchorsPrefix) + "step_000000-e9-" + hash.substr(0, 16) + ".safetensors";
        put(key, text);
        return {std::move(name), "", {{key, text.size(), hash}}, false};
    }

    /// Unsigned, or by a key that nobody trusts.
    std::string sealed(const Commit& commit) {
        std::string object = write_commit(commit);
        if (!random_.chance(0.5)) return object;
        const auto block = write_signature_block(key_, std::nullopt, "commit", as_bytes(object));
        return block ? object + *block : object;
    }

    void write(std::uint64_t seq, const std::string& text) { put(commit_key(seq), text); }

    /// What an honest writer signed, in another place.
    std::string replayed(const RunLedger& ledger) {
        const auto bytes =
            read_whole(world_.truth(), key_of(any_row(ledger).commit.seq), limits::kCommitBytes);
        return bytes ? std::string(as_text(*bytes)) : "";
    }

    const LedgerRow& any_row(const RunLedger& ledger) {
        return std::next(ledger.rows.begin(),
                         static_cast<std::ptrdiff_t>(random_.below(ledger.rows.size())))
            ->second;
    }

    /// What is buried; of what is still needed, only below the head: without that, the log would
    /// be a shorter one, and nobody could tell.
    void overwrite(const RunLedger& ledger) {
        const LedgerRow& row = any_row(ledger);
        const std::uint64_t seq = row.commit.seq;
        if (!row.buried && (!world_.plan().destroys || &row == ledger.head())) return;
        Commit forged = row.commit;
        ++forged.state.step;
        switch (random_.below(3)) {
            case 0: return write(seq, "nothing");
            case 1: return write(seq, sealed(forged));
            default: return write(seq, write_tombstone({ledger.run, seq, seq + random_.below(3)}));
        }
    }

    std::string key_of(std::uint64_t seq) const { return prefix_ + "/" + commit_key(seq); }

    void hint(const RunLedger& ledger) {
        const std::uint64_t seq =
            random_.chance(0.3) ? random_.next() : random_.below(2 * ledger.head()->commit.seq);
        put(std::string(kLatestKey), nlohmann::json{{"wisp", "latest"}, {"seq", seq}}.dump());
    }

    void put(const std::string& key, const std::string& text) {
        const std::string full = prefix_ + "/" + key;
        world_.tell(actor_, fmt::format("writes {}", key));
        if (key.starts_with(kCommitsPrefix) && world_.ledger().holds_honest(full)) {
            world_.mend_later([&world = world_, full, text, bytes = world_.truth().lose(full)] {
                // Unless somebody honest has written there since.
                const Bytes now = world.truth().lose(full);
                world.truth().bring_back(full, as_text(now) == text ? bytes : now);
            });
        }
        world_.truth().author = actor_.name;
        (void)world_.truth().put(full, as_bytes(text));
    }

    World& world_;
    Actor& actor_;
    std::string prefix_;
    Random random_;
    SigningKey key_;
};

}  // namespace

void add_attacker(World& world, std::string prefix, std::int64_t starts_in_ms) {
    world.scheduler().add(
        "attacker",
        [&world, prefix = std::move(prefix)](Actor& actor) {
            AttackerActor attacker(world, actor, prefix);
            world.live(actor, [&] { attacker.session(); });
        },
        starts_in_ms);
}

}  // namespace wisp::sim
