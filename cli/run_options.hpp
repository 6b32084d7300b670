// What the verbs on runs share: whom to trust, who signs, and how run addresses are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "command.hpp"
#include "output.hpp"

namespace wisp::cli {

struct TrustArguments {
    std::vector<std::string> keys;
    std::uint64_t min_serial = 0;
    std::string run;
};

/// --trust, as often as there are keys, --min-serial and --run.
void add_trust(Command& verb, TrustArguments& into);

/// --layout; "trl" for a bucket as TRL writes it.
void add_layout(Command& verb, std::string& into);
/// A usage error when an option was given that such a bucket has no place for.
void refuse_for_trl(const Command& verb, const std::vector<std::string>& options);

Result<RunOptions> run_options(const TrustArguments& arguments);

struct SignArguments {
    std::string key;
    std::string certificate;
};

/// --sign-key and --certificate.
void add_signing(Command& verb, SignArguments& into);

/// Nothing when no key was named.
Result<std::optional<RunSigner>> run_signer(const SignArguments& arguments);

/// The location and how to read it: what every verb on a run starts with.
struct RunAccess {
    Location where;
    RunOptions options;
};
Result<RunAccess> open_run(const std::string& url, const TrustArguments& trust,
                           const Common& common);

/// kInvalid when `folder` is the run's own or lies in it.
Result<void> require_apart(const Location& run, const std::filesystem::path& folder);

/// What compact, retain, scrub and export share.
struct MaintenanceArguments {
    TrustArguments trust;
    SignArguments sign;
    std::string work;
    std::string base;
};
/// --work and --base, for verbs that put a checkpoint together.
void add_workshop(Command& verb, MaintenanceArguments& into);
Result<MaintenanceOptions> maintenance_options(const MaintenanceArguments& arguments,
                                               const RunAccess& access, const Common& common);

/// An existing checkpoint to start from, if one was named.
std::optional<std::filesystem::path> optional_path(const std::string& text);

/// UTC, to the second.
std::string human_time(std::int64_t milliseconds);

}  // namespace wisp::cli
