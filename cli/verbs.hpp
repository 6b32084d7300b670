// One function per verb: declares its options and, when it is called, does its work.
#pragma once

#include "command.hpp"
#include "output.hpp"

namespace wisp::cli {

/// Set by the verb that ran.
struct Outcome {
    int exit_code = 0;
};

void add_diff(Command& app, Outcome& outcome);
void add_apply(Command& app, Outcome& outcome);
void add_merge(Command& app, Outcome& outcome);
void add_inspect(Command& app, Outcome& outcome);
void add_verify(Command& app, Outcome& outcome);
void add_key(Command& app, Outcome& outcome);
void add_doctor(Command& app, Outcome& outcome);
void add_init(Command& app, Outcome& outcome);
void add_publish(Command& app, Outcome& outcome);
void add_follow(Command& app, Outcome& outcome);
void add_pull(Command& app, Outcome& outcome);
void add_read(Command& app, Outcome& outcome);
void add_log(Command& app, Outcome& outcome);
void add_status(Command& app, Outcome& outcome);
void add_dashboard(Command& app, Outcome& outcome);
void add_report(Command& app, Outcome& outcome);
void add_compact(Command& app, Outcome& outcome);
void add_retain(Command& app, Outcome& outcome);
void add_scrub(Command& app, Outcome& outcome);
void add_export(Command& app, Outcome& outcome);
void add_completion(Command& app, Outcome& outcome);
void add_manual(Command& app, Outcome& outcome);

/// --json, -q and, where work is parallel, --threads.
void add_common(Command& verb, Common& common, bool parallel);
/// The result of diff and merge, for people and for machines.
void print_diff_report(const Common& common, const std::string& verb, const std::string& output,
                       const std::string& codec, const DiffReport& report, double seconds);

}  // namespace wisp::cli
