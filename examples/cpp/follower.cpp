// Keeps a folder at the newest step of a run, up to a step that is named: follower RUN FOLDER STEP
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <wisp/wisp.hpp>

namespace {

/// The value, or the end of the program with what went wrong.
template <class T>
T or_exit(wisp::Result<T> result) {
    if (result) return std::move(*result);
    std::fprintf(stderr, "follower: %s\n", result.error().text.c_str());
    std::exit(1);
}

wisp::Result<void> tell(const wisp::FollowEvent& event) {
    using Kind = wisp::FollowEvent::Kind;
    if (event.kind == Kind::kApplied || event.kind == Kind::kJoined) {
        std::printf("step %llu is in place\n", static_cast<unsigned long long>(event.step));
    }
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: follower RUN FOLDER STEP\n");
        return 2;
    }
    const wisp::Location run = or_exit(wisp::open_location(argv[1]));
    const auto replica = or_exit(wisp::open_folder_replica(argv[2]));
    wisp::FollowOptions options;
    options.until_step = std::strtoull(argv[3], nullptr, 10);
    options.on_event = tell;
    wisp::Follower follower = or_exit(wisp::Follower::open(run, *replica, options));
    or_exit(follower.follow());  // each step is proven; what fails leaves the folder as it was
}
