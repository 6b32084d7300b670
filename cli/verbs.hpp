// One function per verb: declares its options and, when it is called, does its work.
#pragma once

#include <CLI/CLI.hpp>

#include "output.hpp"

namespace wisp::cli {

/// Set by the verb that ran.
struct Outcome {
    int exit_code = 0;
};

void add_diff(CLI::App& app, Outcome& outcome);
void add_apply(CLI::App& app, Outcome& outcome);
void add_merge(CLI::App& app, Outcome& outcome);
void add_inspect(CLI::App& app, Outcome& outcome);
void add_verify(CLI::App& app, Outcome& outcome);
void add_key(CLI::App& app, Outcome& outcome);
void add_doctor(CLI::App& app, Outcome& outcome);
void add_init(CLI::App& app, Outcome& outcome);
void add_publish(CLI::App& app, Outcome& outcome);
void add_follow(CLI::App& app, Outcome& outcome);
void add_pull(CLI::App& app, Outcome& outcome);
void add_log(CLI::App& app, Outcome& outcome);
void add_status(CLI::App& app, Outcome& outcome);
void add_dashboard(CLI::App& app, Outcome& outcome);
void add_demo(CLI::App& app, Outcome& outcome);
void add_report(CLI::App& app, Outcome& outcome);
void add_compact(CLI::App& app, Outcome& outcome);
void add_retain(CLI::App& app, Outcome& outcome);
void add_scrub(CLI::App& app, Outcome& outcome);
void add_export(CLI::App& app, Outcome& outcome);
void add_completion(CLI::App& app, Outcome& outcome);

/// --json, -q and, where work is parallel, --threads.
void add_common(CLI::App& verb, Common& common, bool parallel);
/// The result of diff and merge, for people and for machines.
void print_diff_report(const Common& common, const std::string& verb, const std::string& output,
                       const std::string& codec, const DiffReport& report, double seconds);

}  // namespace wisp::cli
