#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "demo_memory.hpp"
#include "demo_roles.hpp"
#include "follow_report.hpp"

namespace wisp::cli {
namespace {

/// How long the weights were being written, and nobody could have used them.
class PauseClock {
  public:
    std::shared_ptr<void> enter() {
        return {this,
                [watch = Stopwatch()](PauseClock* clock) { clock->seconds_ += watch.seconds(); }};
    }
    double take() { return std::exchange(seconds_, 0.0); }

  private:
    double seconds_ = 0;
};

}  // namespace

Result<void> run_demo_follower(const DemoRole& role, const Tell& tell) {
    const auto where = open_location(role.run);
    if (!where) return std::unexpected(where.error());
    PauseClock pause;
    const auto replica =
        open_mapped_replica(role.folder, role.threads, [&pause] { return pause.enter(); });
    if (!replica) return std::unexpected(replica.error());
    FollowOptions options;
    options.threads = role.threads;
    options.replica_id = role.folder.filename().string();
    options.poll = Milliseconds(50);
    options.until_step = role.last_step;
    options.on_event = [&](const FollowEvent& event) -> Result<void> {
        if (event.kind == FollowEvent::Kind::kWaiting) return {};
        nlohmann::ordered_json line = event_json(event);
        line["pause_seconds"] = pause.take();
        tell(line);
        return {};
    };
    auto follower = Follower::open(*where, **replica, options);
    if (!follower) return std::unexpected(follower.error());
    const auto report = follower->follow();
    if (!report) return std::unexpected(report.error());
    return {};
}

}  // namespace wisp::cli
