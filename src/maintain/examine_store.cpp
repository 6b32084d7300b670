#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/bytes.hpp"
#include "base/plural.hpp"
#include "base/random.hpp"
#include "base/stopwatch.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "maintain/create_race.hpp"
#include "maintain/store_probes.hpp"
#include "store/folder_store.hpp"
#include "wisp/control.hpp"
#include "wisp/maintenance.hpp"

namespace wisp {
namespace {

/// More than the parts of a multipart upload, so that a bucket gets several.
constexpr std::size_t kLargeObjectBytes = (std::size_t{65} << 20) + 1;

constexpr std::string_view kLargeRace = "create_large";
// What one large object may take, so that eight at once are worth the wait.
constexpr double kQuickSeconds = 5;
constexpr double kQuickerSeconds = 3;

constexpr std::string_view kScratchName = ".wisp-doctor-";
constexpr std::int64_t kAbandonedMs = 3600 * 1000;

/// Whatever happens, nothing stays under the prefix, unless the store can no longer be reached.
class Scratch {
  public:
    explicit Scratch(const Location& location) : location_(location) {
        location_.prefix = location.key(fmt::format("{}{:016x}", kScratchName, fresh_seed()));
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { (void)clear(); }
    const Location& location() const { return location_; }

    Result<void> clear() {
        const std::string prefix = location_.prefix + "/";
        for (;;) {
            WISP_ASSIGN(const auto listed, location_.store->list(prefix, "", 1000));
            for (const ListedObject& object : listed) {
                WISP_TRY(location_.store->remove(object.key));
            }
            if (listed.empty()) break;
        }
        if (auto* folder = dynamic_cast<FolderStore*>(location_.store.get()); folder != nullptr) {
            folder->remove_empty_folders(location_.prefix);
        }
        return {};
    }

  private:
    Location location_;
};

/// Removes what examinations left that were stopped before they could tidy up.
void remove_abandoned(const Location& location) {
    const auto now = location.store->now_ms();
    const auto listed = location.store->list(location.key(kScratchName), "", 1000);
    if (!now || !listed) return;
    for (const ListedObject& object : *listed) {
        const std::int64_t modified = object.info.modified_ms;
        if (modified != 0 && *now - modified > kAbandonedMs) {
            (void)location.store->remove(object.key);
        }
    }
}

Error interrupted(Scratch& scratch) {
    std::string text = "the examination was interrupted; run it again";
    if (!scratch.clear()) {
        text += fmt::format("; objects under {} stay until one runs in an hour or later",
                            shown(scratch.location().prefix));
    }
    return {ErrorKind::kUnavailable, text};
}

Finding race_finding(const std::string& name, const RaceShape& shape, const RaceVerdict& verdict) {
    if (!verdict.conviction.empty()) {
        return {name, Verdict::kFail,
                fmt::format("in round {}, {}", verdict.rounds, verdict.conviction),
                "let one writer only use this store, or use another one"};
    }
    if (!verdict.decided) {
        const std::string why =
            fmt::format("{} of {} got no answer", verdict.undecided, many(verdict.rounds, "round"));
        if (name == kLargeRace) {
            return {name, Verdict::kSkipped, why + "; the races of small objects decide", ""};
        }
        return {name, Verdict::kUndecided, why, "try again when the store answers"};
    }
    // Of a fault that shows in one round of n, 3 n rounds miss one examination in twenty.
    return {name, Verdict::kPass,
            fmt::format("{} of {} writers at once, one winner each; a store that lets two win once "
                        "in {} is caught 19 times in 20",
                        many(verdict.rounds, "round"), shape.writers,
                        many(std::max(verdict.rounds / 3, 1U), "round")),
            ""};
}

struct Probe {
    std::string name;
    /// What it finds to be wrong is proven; an error is that it could not be tried.
    std::function<Result<Finding>()> run;
};

void add(const Probe& probe, Result<Finding> found, DoctorReport& report) {
    const bool broken =
        found ? found->verdict == Verdict::kFail : found.error().kind == ErrorKind::kIncapable;
    if (broken && probe.name.starts_with("create_")) report.convicted = true;
    if (!found && found.error().kind == ErrorKind::kUnavailable) {
        found = Finding{probe.name, Verdict::kUndecided, found.error().text,
                        "try again when the store answers"};
    } else if (!found) {
        found = Finding{probe.name, Verdict::kFail, found.error().text,
                        "mend this first, then run the examination again"};
    }
    report.findings.push_back(std::move(*found));
}

Probe race(const Location& scratch, const std::string& name, const RaceShape& shape,
           DoctorReport& report) {
    return {name, [=, &scratch, &report]() -> Result<Finding> {
                if (report.convicted) {
                    return Finding{name, Verdict::kSkipped,
                                   "conditional writes do not hold, as was found above", ""};
                }
                WISP_ASSIGN(const RaceVerdict verdict,
                            race_creates(scratch, name, shape, fresh_seed()));
                report.races += verdict.rounds - verdict.undecided;
                return race_finding(name, shape, verdict);
            }};
}

/// A store that looks first and writes later is caught while it writes, and a large object takes it
/// long: one that lets two small ones win once in hundreds of rounds does so in every third here.
/// Only where the bytes travel quickly.
Probe race_large(const Location& scratch, bool quick, DoctorReport& report) {
    const RaceShape shape{8, 17'000'000, quick ? 8U : 16U, quick ? 5.0 : 15.0};
    const double most_seconds = quick ? kQuickerSeconds : kQuickSeconds;
    const std::string name(kLargeRace);
    return {name, [=, &scratch, &report]() -> Result<Finding> {
                const auto skipped = [&](const std::string& why) {
                    return Finding{name, Verdict::kSkipped, why, ""};
                };
                const std::string key = scratch.key(name + "/alone");
                const Stopwatch timer;
                const auto put = scratch.store->put(key, std::vector<std::byte>(shape.body_bytes));
                const double seconds = timer.seconds();
                (void)scratch.store->remove(key);
                // A proxy that takes no large bodies, say: nothing about conditions.
                if (!put) return skipped("an object of 17 MB: " + put.error().text);
                if (seconds > most_seconds) {
                    return skipped(fmt::format(
                        "one object of 17 MB takes {:.1f} s to get there, too long to race with",
                        seconds));
                }
                auto raced = race(scratch, name, shape, report).run();
                if (!raced && !stopped()) return skipped("a race: " + raced.error().text);
                return raced;
            }};
}

/// Not an answer: the races of small objects decide.
Probe no_large_race(const std::string& why) {
    return {std::string(kLargeRace), [why]() -> Result<Finding> {
                return Finding{std::string(kLargeRace), Verdict::kSkipped, why, ""};
            }};
}

/// Requests are counted there, and the store itself says how a race would end.
Probe no_race(const std::string& name) {
    return {name, [name]() -> Result<Finding> {
                return Finding{name, Verdict::kSkipped,
                               "this way to the store cannot decide between racing writers", ""};
            }};
}

/// How the store is reached, where there are several ways to it.
void tell_way(const StoreTerms& terms, DoctorReport& report) {
    if (terms.way.empty()) return;
    const Verdict verdict = terms.better.empty() ? Verdict::kPass : Verdict::kWarn;
    report.findings.push_back({"way", verdict, terms.way, terms.better});
}

std::vector<Probe> probes_for(const Location& scratch, const DoctorOptions& options,
                              DoctorReport& report) {
    const StoreTerms terms = scratch.store->terms();
    const bool hub = terms.few_requests;
    const bool bucket = hub || scratch.url.starts_with("s3://");
    // On a disk nothing travels, so that fewer and smaller bodies race as hard.
    const std::size_t body = !bucket ? 16'000 : options.quick || hub ? 128'000 : 300'000;
    const unsigned rounds = options.quick || hub ? 15 : bucket ? 150 : 40;
    const bool races = !hub || scratch.store->creates_exclusively();
    const auto contest = [&](const std::string& name, const RaceShape& shape) {
        return races ? race(scratch, name, shape, report) : no_race(name);
    };
    const auto plain = [&](const char* name, Result<Finding> (*probe)(const Location&)) {
        return Probe{name, [probe, &scratch] { return probe(scratch); }};
    };
    const bool skip = options.quick || !bucket;
    std::vector<Probe> probes = {
        plain("create_twice", probe_create_twice),
        hub || !bucket
            ? no_large_race(hub ? "requests are counted there" : "a folder links what is complete")
            : race_large(scratch, options.quick, report),
        contest("create_interleaved", {2, 2 * body, std::max(rounds / 3, 10U)}),
        contest("create_racing", {4, body, rounds}),
        plain("ranges", probe_ranges),
        plain("overwrite", probe_overwrite),
        plain("remove", probe_remove),
        plain("listing", probe_listing),
        plain("key_characters", probe_key_characters),
        plain("clock", probe_clock)};
    probes.push_back({"large_object", [=, &scratch]() -> Result<Finding> {
                          if (!skip) return probe_large_object(scratch, kLargeObjectBytes);
                          return Finding{"large_object", Verdict::kSkipped,
                                         bucket ? "left out by --quick" : "a folder has no parts",
                                         ""};
                      }});
    return probes;
}

bool create_holds(const DoctorReport& report) {
    return std::ranges::none_of(report.findings, [](const Finding& finding) {
        const bool left_out = finding.name == kLargeRace && finding.verdict == Verdict::kSkipped;
        return finding.name.starts_with("create_") && finding.verdict != Verdict::kPass &&
               !left_out;
    });
}

}  // namespace

std::string_view name_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::kPass: return "pass";
        case Verdict::kWarn: return "warn";
        case Verdict::kFail: return "fail";
        case Verdict::kSkipped: return "skipped";
        case Verdict::kUndecided: return "undecided";
    }
    return "";
}

Result<DoctorReport> examine(const Location& location, const DoctorOptions& options) {
    const StopScope scope(options.stop);
    Scratch scratch(location);
    WISP_TRY(scratch.location().store->put(scratch.location().key("write"), as_bytes("x")));
    remove_abandoned(location);
    DoctorReport report;
    tell_way(location.store->terms(), report);
    report.findings.push_back({"write", Verdict::kPass, "objects can be written", ""});
    const auto probes = probes_for(scratch.location(), options, report);
    for (std::size_t i = 0; i < probes.size(); ++i) {
        if (options.progress) options.progress(probes[i].name, i, probes.size());
        auto finding = probes[i].run();
        if (stopped()) return std::unexpected(interrupted(scratch));
        add(probes[i], std::move(finding), report);
    }
    if (options.progress) options.progress("done", probes.size(), probes.size());
    if (const auto cleared = scratch.clear(); !cleared) {
        report.findings.push_back(
            {"tidy", Verdict::kWarn, cleared.error().text,
             fmt::format("remove {} by hand", shown(scratch.location().prefix))});
    }
    const auto any = [&](Verdict verdict) {
        return std::ranges::any_of(
            report.findings, [&](const Finding& finding) { return finding.verdict == verdict; });
    };
    report.exclusive_create = create_holds(report) && location.store->creates_exclusively();
    report.healthy = !any(Verdict::kFail);
    report.undecided = any(Verdict::kUndecided);
    return report;
}

}  // namespace wisp
