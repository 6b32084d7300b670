// Publishes checkpoints, one step each, from where the run stands: publisher RUN CHECKPOINT...
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <wisp/wisp.hpp>

namespace {

/// The value, or the end of the program with what went wrong.
template <class T>
T or_exit(wisp::Result<T> result) {
    if (result) return std::move(*result);
    std::fprintf(stderr, "publisher: %s\n", result.error().text.c_str());
    std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: publisher RUN CHECKPOINT...\n");
        return 2;
    }
    const wisp::Location run = or_exit(wisp::open_location(argv[1]));
    const auto made = wisp::init_run(run, {});
    if (!made && made.error().kind != wisp::ErrorKind::kConflict) or_exit(made);

    // The last state that was committed; each step is what differs from it.
    const auto baseline = or_exit(wisp::open_memory_replica());
    wisp::Publisher publisher = or_exit(wisp::Publisher::open(run, *baseline, {}));
    for (int i = 2; i < argc; ++i) {
        const wisp::Checkpoint weights = or_exit(wisp::Checkpoint::open(argv[i]));
        const auto report = or_exit(publisher.publish(weights, publisher.next_step()));
        std::printf("step %llu: %llu of %llu weights changed, %llu bytes\n",
                    static_cast<unsigned long long>(report.step),
                    static_cast<unsigned long long>(report.changed_elements),
                    static_cast<unsigned long long>(report.total_elements),
                    static_cast<unsigned long long>(report.uploaded_bytes));
    }
}
