// The simulation's command line.
//
//   sim --seeds A..B [--jobs N]    runs them all; the seeds that fail are printed, with a trace
//   sim --seed N [--trace]         one again, with every operation if asked
//   sim --regressions FILE         one seed per line, then why it is there
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sys/syscall.h>
#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "sim/world.hpp"

namespace wisp::sim {
namespace {

namespace fs = std::filesystem;

fs::path work_folder() {
    std::error_code ignored;
    const fs::path shared = "/dev/shm";
    const fs::path top = fs::is_directory(shared, ignored) ? shared : fs::temp_directory_path();
    // The simulation fixes what getpid() says; folders need the true one.
    return top / fmt::format("wisp-sim-{}", ::syscall(SYS_getpid));
}

struct Totals {
    std::uint64_t seeds = 0;
    std::uint64_t failures = 0;
    std::uint64_t operations = 0;
    std::uint64_t commits = 0;
    std::uint64_t moves = 0;
    std::uint64_t most_requests = 0;
};

void run_seed(std::uint64_t seed, bool trace, Totals& totals) {
    World world(seed, work_folder());
    if (trace) world.trace().show_all();
    const Verdict verdict = world.run();
    ++totals.seeds;
    totals.operations += verdict.operations;
    totals.commits += verdict.commits;
    totals.moves += verdict.moves;
    totals.most_requests = std::max(totals.most_requests, verdict.most_requests);
    if (verdict.passed) {
        if (trace) fmt::print("seed {} passes, fingerprint {:016x}\n", seed, verdict.fingerprint);
        return;
    }
    ++totals.failures;
    world.trace().print();
    fmt::print("FAILED seed {}: {}\n  replay: sim --seed {} --trace\n", seed, verdict.problem,
               seed);
    std::fflush(stdout);
}

int report(const Totals& totals, std::chrono::steady_clock::time_point start) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    fmt::print(
        "{} seeds, {} failed; {} operations, {} commits, {} moves of replicas, at most {} requests "
        "of one actor after the storm; {:.1f} s, {:.0f} seeds/s\n",
        totals.seeds, totals.failures, totals.operations, totals.commits, totals.moves,
        totals.most_requests, seconds, static_cast<double>(totals.seeds) / seconds);
    std::fflush(stdout);
    return totals.failures == 0 ? 0 : 1;
}

int run_range(std::uint64_t first, std::uint64_t last, std::uint64_t job, std::uint64_t jobs,
              std::uint64_t most_failures) {
    const auto start = std::chrono::steady_clock::now();
    Totals totals;
    for (std::uint64_t seed = first + job; seed <= last; seed += jobs) {
        run_seed(seed, false, totals);
        if (totals.failures >= most_failures) break;
    }
    return report(totals, start);
}

int run_jobs(std::uint64_t first, std::uint64_t last, std::uint64_t jobs,
             std::uint64_t most_failures) {
    if (jobs <= 1) return run_range(first, last, 0, 1, most_failures);
    for (std::uint64_t job = 0; job < jobs; ++job) {
        if (::fork() == 0) std::_Exit(run_range(first, last, job, jobs, most_failures));
    }
    int worst = 0;
    int status = 0;
    while (::wait(&status) > 0) worst |= status;
    return worst == 0 ? 0 : 1;
}

int run_regressions(const std::string& path) {
    const auto start = std::chrono::steady_clock::now();
    Totals totals;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        std::uint64_t seed = 0;
        if (std::from_chars(line.data(), line.data() + line.size(), seed).ec == std::errc()) {
            run_seed(seed, false, totals);
        }
    }
    if (!in.eof()) fmt::print("cannot read {}\n", path);
    return in.eof() ? report(totals, start) : 2;
}

}  // namespace
}  // namespace wisp::sim

int main(int argc, char** argv) {
    CLI::App app("deterministic simulation of the bucket protocol");
    std::string range;
    std::string regressions;
    std::uint64_t seed = 0;
    std::uint64_t jobs = 1;
    std::uint64_t most_failures = 1;
    bool trace = false;
    app.add_option("--seeds", range, "A..B, both included");
    auto* one = app.add_option("--seed", seed, "one seed");
    app.add_option("--jobs", jobs, "processes");
    app.add_option("--failures", most_failures, "stop after so many");
    app.add_option("--regressions", regressions, "file of seeds");
    app.add_flag("--trace", trace, "print every operation");
    CLI11_PARSE(app, argc, argv);
    if (!regressions.empty()) return wisp::sim::run_regressions(regressions);
    if (*one) {
        wisp::sim::Totals totals;
        wisp::sim::run_seed(seed, trace, totals);
        return totals.failures == 0 ? 0 : 1;
    }
    const std::size_t dots = range.find("..");
    if (dots == std::string::npos) {
        fmt::print("{}", app.help());
        return 2;
    }
    return wisp::sim::run_jobs(std::stoull(range.substr(0, dots)),
                               std::stoull(range.substr(dots + 2)), jobs, most_failures);
}
