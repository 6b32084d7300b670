#include "maintain/create_race.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <optional>
#include <thread>

#include "base/random.hpp"
#include "base/stopwatch.hpp"
#include "base/try.hpp"
#include "base/without_throwing.hpp"
#include "wisp/control.hpp"

namespace wisp {
namespace {

using Bodies = std::vector<std::vector<std::byte>>;

Bodies different_bodies(const RaceShape& shape, Random& random) {
    Bodies bodies(shape.writers, std::vector<std::byte>(shape.body_bytes));
    for (auto& body : bodies) {
        for (std::byte& byte : body) byte = static_cast<std::byte>(random.next() >> 56);
    }
    return bodies;
}

struct Round {
    std::vector<unsigned> winners;
    bool undecided = false;
};

Result<Round> run_round(Store& store, const std::string& key, const Bodies& bodies) {
    std::vector<std::optional<Result<Created>>> answers(bodies.size());
    std::barrier start(static_cast<std::ptrdiff_t>(bodies.size()));
    {
        const StopScope* const scope = StopScope::innermost();
        std::vector<std::jthread> writers;
        for (std::size_t i = 0; i < bodies.size(); ++i) {
            const bool started = start_thread(writers, [&, scope, i] {
                const StopScope handed_on(scope);
                start.arrive_and_wait();
                answers[i] = without_throwing([&] { return store.create(key, bodies[i]); });
            });
            if (started) continue;
            answers[i] = fail(ErrorKind::kUnavailable, "the system has no thread left to give");
            start.arrive_and_drop();
        }
    }
    Round round;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
        const Result<Created>& answer = *answers[i];
        if (!answer && answer.error().kind != ErrorKind::kUnavailable) {
            return std::unexpected(answer.error());
        }
        if (!answer) round.undecided = true;
        if (answer && *answer == Created::kNew) round.winners.push_back(static_cast<unsigned>(i));
    }
    return round;
}

/// Why a round proves the store wrong; empty when it does not.
Result<std::string> convict(Store& store, const std::string& key, const Bodies& bodies,
                            const Round& round) {
    if (round.winners.size() > 1) {
        return fmt::format("{} of {} writers were told that they created the same object",
                           round.winners.size(), bodies.size());
    }
    if (round.undecided) return std::string();
    if (round.winners.empty()) return std::string("no writer could create an object nobody had");
    WISP_ASSIGN(const auto stored, read_whole(store, key, bodies[0].size()));
    if (stored != bodies[round.winners[0]]) {
        return std::string("the object holds the bytes of a writer that was told it lost");
    }
    return std::string();
}

}  // namespace

Result<RaceVerdict> race_creates(const Location& scratch, const std::string& name,
                                 const RaceShape& shape, std::uint64_t seed) {
    Random random(seed);
    const Bodies bodies = different_bodies(shape, random);
    RaceVerdict verdict;
    const Stopwatch timer;
    const auto is_over = [&] { return shape.seconds > 0 && timer.seconds() > shape.seconds; };
    while (verdict.rounds < shape.rounds && !(verdict.rounds > 0 && is_over())) {
        if (stopped()) return fail(ErrorKind::kUnavailable, "interrupted");
        const std::string key = scratch.key(fmt::format("{}/{}", name, verdict.rounds));
        WISP_ASSIGN(const Round round, run_round(*scratch.store, key, bodies));
        ++verdict.rounds;
        if (round.undecided) ++verdict.undecided;
        WISP_ASSIGN(verdict.conviction, convict(*scratch.store, key, bodies, round));
        // Only to keep the bucket small: what stays is removed in the end.
        (void)scratch.store->remove(key);
        if (!verdict.conviction.empty()) break;
        // Each took all the patience there is; more of them would not decide it either.
        if (verdict.undecided >= 3 && verdict.undecided * 2 >= verdict.rounds) break;
    }
    verdict.decided = !verdict.conviction.empty() || verdict.undecided * 2 < verdict.rounds;
    return verdict;
}

}  // namespace wisp
