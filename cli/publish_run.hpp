// What 'wisp publish' does with one checkpoint and with many: the publisher, its baseline, and what
// is printed of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "run_options.hpp"

namespace wisp::cli {

struct PublishArguments {
    Common common;
    std::string run;
    std::string layout = "wisp";
    std::string checkpoint;
    std::optional<std::uint64_t> step;
    std::uint64_t anchor_every = 0;
    std::string codec;  // of TRL's layout
    std::string baseline;
    std::string base;
    std::string base_name;
    bool take_over = false;
    bool rewind = false;
    bool allow_schema_change = false;
    bool heartbeat = false;
    std::uint64_t part_bytes = std::uint64_t{1} << 30;
    Milliseconds expires{0};
    bool expires_given = false;
    std::string metrics;
    std::string watch;  // a folder of checkpoint folders, or their pattern
    std::string ready;
    Milliseconds quiet{5'000};
    Milliseconds poll{1'000};
    bool once = false;
    std::optional<std::uint64_t> until_step;
    SignArguments sign;
    TrustArguments trust;
};

struct Published {
    PublishReport report;
    std::uint64_t checkpoint_bytes = 0;
};

/// The folder of the last published state, locked.
Result<std::unique_ptr<Replica>> open_baseline(const PublishArguments& arguments,
                                               const RunAccess& access);
Result<PublishOptions> publish_options(const PublishArguments& arguments, const RunAccess& access);

/// The library says what can be done about an error; here the flag that does it is added.
Error with_flag(Error error);

/// Calls `act` with a publisher and the baseline it stands on.
template <class Act>
auto with_publisher(const PublishArguments& arguments, Act act)
    -> decltype(act(std::declval<Publisher&>(), std::declval<Replica&>())) {
    auto access = open_run(arguments.run, arguments.trust, arguments.common);
    if (!access) return std::unexpected(std::move(access).error());
    auto options = publish_options(arguments, *access);
    if (!options) return std::unexpected(std::move(options).error());
    auto baseline = open_baseline(arguments, *access);
    if (!baseline) return std::unexpected(std::move(baseline).error());
    auto publisher = Publisher::open(access->where, **baseline, *options);
    if (!publisher) return std::unexpected(with_flag(std::move(publisher).error()));
    auto done = act(*publisher, **baseline);
    if (!done) return std::unexpected(with_flag(std::move(done).error()));
    return done;
}

/// For people, or as a line of JSON.
void print_published(const PublishArguments& arguments, const Published& published, double seconds);

}  // namespace wisp::cli
