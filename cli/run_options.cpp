#include "run_options.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "process_stop.hpp"
#include "watched_store.hpp"

namespace wisp::cli {

void add_trust(Command& verb, TrustArguments& into) {
    verb.add_option("--trust", into.keys,
                    "Accept only what this key signed or certified: text or file; repeatable")
        ->type_name("KEY")
        ->allow_extra_args(false);
    verb.add_option("--min-serial", into.min_serial, "Refuse certificates with a lower serial")
        ->check(not_negative());
    verb.add_option("--run", into.run,
                    "The run that must be at the address: the identity that 'wisp init' printed")
        ->type_name("ID");
}

void add_layout(Command& verb, std::string& into) {
    verb.add_option("--layout", into,
                    "wisp: a run with its log; trl: anchors/ and deltas/ as TRL writes them")
        ->check(one_of({"wisp", "trl"}))
        ->capture_default_str();
}

void refuse_for_trl(const Command& verb, const std::vector<std::string>& options) {
    for (const std::string& option : options) {
        if (verb.count(option) == 0) continue;
        refuse_usage(option, "TRL's layout has no place for it; use --layout wisp");
    }
}

Result<RunOptions> run_options(const TrustArguments& arguments) {
    RunOptions options;
    options.stop = process_stop();
    for (const std::string& text : arguments.keys) {
        auto key = PublicKey::load(text);
        if (!key) return std::unexpected(std::move(key).error());
        options.trust.keys.push_back(*key);
    }
    options.trust.min_serial = arguments.min_serial;
    options.expected_run = arguments.run;
    return options;
}

void add_signing(Command& verb, SignArguments& into) {
    auto* key =
        verb.add_option("--sign-key", into.key, "Sign with this private key")->type_name("FILE");
    verb.add_option("--certificate", into.certificate, "A root key's word for the signing key")
        ->type_name("FILE")
        ->needs(key);
}

Result<std::optional<RunSigner>> run_signer(const SignArguments& arguments) {
    if (arguments.key.empty()) return std::optional<RunSigner>{};
    auto signer = RunSigner::load(arguments.key, arguments.certificate);
    if (!signer) return std::unexpected(std::move(signer).error());
    return std::optional(std::move(*signer));
}

Result<RunAccess> open_run(const std::string& url, const TrustArguments& trust,
                           const Common& common) {
    auto where = open_location(url);
    if (!where) return std::unexpected(std::move(where).error());
    auto options = run_options(trust);
    if (!options) return std::unexpected(std::move(options).error());
    return RunAccess{watched(std::move(*where), common), std::move(*options)};
}

Result<void> require_apart(const Location& run, const std::filesystem::path& folder) {
    namespace fs = std::filesystem;
    const bool in_folder = run.url.find("://") == std::string::npos || run.url.starts_with("file:");
    if (!in_folder) return {};
    std::error_code error;
    // A run in a folder is rooted at "/".
    const fs::path own = fs::weakly_canonical(fs::path("/") / run.prefix, error);
    const fs::path other = fs::weakly_canonical(fs::absolute(folder, error), error);
    if (error) return {};
    const auto holds = [](const fs::path& outer, const fs::path& inner) {
        return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first ==
               outer.end();
    };
    if (!holds(own, other)) return {};
    return fail(ErrorKind::kInvalid,
                fmt::format("{} belongs to the run at {}; name another folder with --into",
                            printable(folder.string()), printable(run.url)));
}

void add_workshop(Command& verb, MaintenanceArguments& into) {
    verb.add_option("--work", into.work, "Room for a checkpoint; a temporary folder by default")
        ->type_name("DIR");
    verb.add_option("--base", into.base,
                    "The public checkpoint that anchors stand on, or one at hand to start from")
        ->type_name("CHECKPOINT");
}

Result<MaintenanceOptions> maintenance_options(const MaintenanceArguments& arguments,
                                               const RunAccess& access, const Common& common) {
    MaintenanceOptions options;
    options.run = access.options;
    auto signer = run_signer(arguments.sign);
    if (!signer) return std::unexpected(std::move(signer).error());
    options.signer = std::move(*signer);
    options.work = arguments.work;
    options.base = optional_path(arguments.base);
    options.threads = common.threads;
    options.progress = progress_bar(common);
    return options;
}

std::optional<std::filesystem::path> optional_path(const std::string& text) {
    if (text.empty()) return std::nullopt;
    return std::filesystem::path(text);
}

std::string human_time(std::int64_t milliseconds) {
    const auto seconds = static_cast<std::time_t>(milliseconds / 1000);
    std::tm broken{};
    if (::gmtime_r(&seconds, &broken) == nullptr) return fmt::format("{} ms", milliseconds);
    return fmt::format("{:%Y-%m-%d %H:%M:%S}", broken);
}

}  // namespace wisp::cli
