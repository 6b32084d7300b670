#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/limits.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "follow/fetch_plan.hpp"
#include "log/branch_pins.hpp"
#include "log/commit_log.hpp"
#include "log/manifest.hpp"
#include "log/run_keys.hpp"
#include "log/state_search.hpp"
#include "wisp/control.hpp"
#include "wisp/run.hpp"

namespace wisp {
namespace {

/// What a branch takes over: the state, and the way to it in the other run's objects.
struct Origin {
    LogEntry entry;  // the commit that made the state
    Manifest
        manifest;  // anchor and merged deltas up to the state; files name the run that holds them
    std::uint64_t floor = 0;
    std::uint64_t oldest_seq = 0;  // of what is used
    std::uint64_t bytes = 0;
};

/// A file of `from`'s log as seen from `to`.
StoredFile seen_from(StoredFile file, const Location& from, const Location& to) {
    const std::string holder = file.at.empty()
                                   ? from.prefix
                                   : resolve_run_path(from.prefix, file.at).value_or(from.prefix);
    file.at = run_path_between(to.prefix, holder);
    return file;
}

Result<Origin> find_origin(const CommitLog& log, const Location& branch,
                           std::optional<std::uint64_t> step) {
    WISP_ASSIGN(const auto head, log.head());
    if (!head || head->commit.state.seq == 0) {
        return fail(ErrorKind::kNoRun,
                    fmt::format("{} holds no state yet to branch from", shown(log.where().url)));
    }
    Lineage history(log, *head);
    WISP_ASSIGN(const Manifest manifest, log.manifest_of(*head));
    StateName state = head->commit.state;
    if (step) {
        WISP_ASSIGN(state, find_state(history, *step));
        if (state.step != *step) {
            return fail(ErrorKind::kNotFound,
                        fmt::format("{} has no step {}; the nearest before it is {}",
                                    shown(log.where().url), *step, state.step));
        }
    }
    FetchPlanRequest request;
    request.target = state;
    request.floor = head->commit.floor;
    // A public base is as good for the branch as for the run: its anchor is taken over as it is.
    for (const AnchorEntry& anchor : manifest.anchors) {
        if (anchor.base) request.base = anchor.base;
    }
    const auto plan = plan_fetch(manifest, request);
    if (!plan || !plan->anchor) {
        return fail(ErrorKind::kGap, fmt::format("no anchor leads to step {} of {}", state.step,
                                                 shown(log.where().url)));
    }
    WISP_ASSIGN(LogEntry entry, history.at(state.seq));
    Origin origin{std::move(entry), {}, head->commit.floor, plan->anchor->state.seq, plan->bytes};
    AnchorEntry anchor = *plan->anchor;
    for (StoredFile& file : anchor.files) file = seen_from(file, log.where(), branch);
    add_anchor(origin.manifest, std::move(anchor));
    for (const FetchStep& fetch_step : plan->steps) {
        if (fetch_step.merged_delta) {
            add_merged_delta(origin.manifest,
                             {fetch_step.from, fetch_step.to,
                              seen_from(*fetch_step.merged_delta, log.where(), branch)});
            continue;
        }
        StateName from = fetch_step.from;
        WISP_ASSIGN(const auto walked, history.between(fetch_step.from.seq, fetch_step.to.seq));
        for (const LogEntry& step_entry : walked) {
            if (!step_entry.commit.makes_state()) continue;
            // A step that changed nothing has no delta: whatever led to the state before it leads
            // to this one, and there is no single delta to walk along below the branch's floor.
            if (!step_entry.commit.delta) {
                (origin.manifest.merged_deltas.empty() ? origin.manifest.anchors.back().state
                                                       : origin.manifest.merged_deltas.back().to) =
                    step_entry.commit.state;
                from = step_entry.commit.state;
                continue;
            }
            add_merged_delta(origin.manifest,
                             {from, step_entry.commit.state,
                              seen_from(*step_entry.commit.delta, log.where(), branch)});
            from = step_entry.commit.state;
        }
    }
    return origin;
}

/// Tells every run whose objects the branch uses, before the branch counts on them.
Result<void> pin_objects(const Location& branch, const std::string& run, const Manifest& manifest) {
    std::map<std::string, std::set<std::string>> keys;  // by the prefix of the run that holds them
    const auto note = [&](const StoredFile& file) {
        const auto prefix = resolve_run_path(branch.prefix, file.at);
        for (const StoredPart& part : file.parts) keys[prefix.value_or("")].insert(part.key);
    };
    for (const AnchorEntry& anchor : manifest.anchors) {
        for (const StoredFile& file : anchor.files) note(file);
    }
    for (const MergedDelta& merged_delta : manifest.merged_deltas) note(merged_delta.delta);
    for (const auto& [prefix, used] : keys) {
        const BranchPin pin{
            run, run_path_between(prefix, branch.prefix), {used.begin(), used.end()}};
        const Location holder{branch.store, prefix, branch.url};
        WISP_TRY(write_branch_pin(holder, pin));
    }
    return {};
}

Result<void> start_branch(CommitLog& log, const CommitLog& other, const Origin& origin,
                          const InitOptions& options) {
    WISP_TRY(pin_objects(log.where(), log.run(), origin.manifest));
    // Retention moves the floor first and looks for pins after: either it sees the pin, or the
    // floor is seen here.
    WISP_ASSIGN(const auto head, other.head());
    if (!head || head->commit.floor > origin.oldest_seq) {
        return fail(ErrorKind::kConflict,
                    "retention moved on while the branch was made; try again");
    }
    Commit commit;
    commit.kind = CommitKind::kBranch;
    commit.epoch = origin.entry.commit.epoch;
    commit.writer = origin.entry.commit.writer;
    commit.previous = origin.entry.ref();
    commit.state = origin.entry.commit.state;
    commit.schema = origin.entry.commit.schema;
    commit.total_elements = origin.entry.commit.total_elements;
    commit.base = commit.state.digest;
    commit.manifest = origin.manifest;
    commit.floor = origin.entry.commit.state.seq;
    commit.anchor_seq = origin.manifest.anchors.back().state.seq;
    const auto draft = [&](std::uint64_t seq) {
        commit.state.seq = seq;
        return commit;
    };
    WISP_ASSIGN(const auto appended, log.append(draft, std::nullopt, options.signer));
    (void)appended;  // the winner wrote the same
    return {};
}

/// Whom the readers of the new run are to believe.
Result<std::vector<PublicKey>> roots_of(const InitOptions& options) {
    std::vector<PublicKey> roots = options.roots;
    if (!options.signer) {
        if (roots.empty() || !options.branch_of) return roots;
        return fail(ErrorKind::kInvalid,
                    "a branch begins with a commit of its own, which must be signed as the rest; "
                    "pass --sign-key");
    }
    const auto& certificate = options.signer->certificate;
    if (roots.empty() && !certificate) roots.push_back(options.signer->key.public_key());
    const std::string needed =
        certificate ? certificate->root_id : options.signer->key.public_key().id();
    if (std::ranges::find(roots, needed, &PublicKey::id) != roots.end()) return roots;
    return fail(ErrorKind::kInvalid,
                fmt::format("the run's root keys must have key {} among them, which {}; name its "
                            "public half with --root",
                            needed, certificate ? "made the certificate" : "is to sign"));
}

}  // namespace

Result<InitReport> init_run(const Location& where, const InitOptions& options) {
    const StopScope scope(options.run.stop);
    Random random(options.run.seed == 0 ? fresh_seed() : options.run.seed);
    RunRecord record;
    record.nonce = fmt::format("{:016x}{:016x}", random.next(), random.next());
    record.created_ms = options.run.clock->now_ms();
    record.exclusive = options.mode == CommitMode::kExclusive;
    if (options.codec && !holds_blocks(*options.codec)) {
        return fail(ErrorKind::kInvalid, fmt::format("a run's codec is compact or swift, not {}",
                                                     name_of(*options.codec)));
    }
    record.codec = options.codec.value_or(kDefaultCodec);
    record.slices = options.slices;
    WISP_ASSIGN(record.roots, roots_of(options));
    std::optional<CommitLog> other;
    std::optional<Origin> origin;
    InitReport report;
    if (options.branch_of) {
        if (options.branch_of->store->bucket() != where.store->bucket()) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("{} and {} are not in one bucket; a branch shares the objects "
                                    "of its origin, so use 'wisp export' instead",
                                    shown(where.url), shown(options.branch_of->url)));
        }
        WISP_ASSIGN(other, CommitLog::open(*options.branch_of, options.run));
        if (!options.codec) record.codec = other->record().codec;
        if (!options.slices && record.codec == Codec::kSwift) {
            record.slices = other->record().slices;
        }
        WISP_ASSIGN(origin, find_origin(*other, where, options.branch_step));
        record.origin = RunRecord::Origin{run_path_between(where.prefix, options.branch_of->prefix),
                                          other->run(), origin->entry.commit.state.seq};
        report.branch_step = origin->entry.commit.state.step;
        report.shared_bytes = origin->bytes;
    }
    if (record.slices.value_or(0) > limits::kSlices ||
        (record.slices.value_or(0) > 0 && record.codec != Codec::kSwift)) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("a run of the codec swift can have up to {} slices, others none",
                                limits::kSlices));
    }
    const std::string text = write_run_record(record);
    WISP_ASSIGN(const Created created, where.store->create(where.key(kRunKey), as_bytes(text)));
    // Whom to trust was said of the run that is branched; this one names its own.
    RunOptions own = options.run;
    own.trust.keys.clear();
    own.expected_run.clear();
    WISP_ASSIGN(CommitLog log, CommitLog::open(where, own));
    report.run = log.run();
    report.codec = log.record().codec;
    report.is_signed = log.is_signed();
    if (created == Created::kAlreadyThere && run_id_of(text) != log.run()) {
        const bool same = origin && log.record().origin == record.origin;
        WISP_ASSIGN(const auto head, log.head());
        if (!same || head) {
            return fail(ErrorKind::kConflict,
                        fmt::format("there is a run at {} already; choose another address",
                                    shown(where.url)));
        }
        report.already_there = true;
    }
    if (origin) WISP_TRY(start_branch(log, *other, *origin, options));
    return report;
}

}  // namespace wisp
