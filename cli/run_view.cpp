#include "run_view.hpp"
#include "version.hpp"
#include "wisp/run_status.hpp"

#include <algorithm>
#include <chrono>

namespace wisp::cli {
namespace {

constexpr std::int64_t kHeadMs = 1'000;       // how old an answer about the head may be
constexpr std::int64_t kReplicasMs = 2'000;   // about replicas: a listing, and one read for each
constexpr std::int64_t kStatusMs = 30'000;    // about the rest, while the head stays
constexpr std::int64_t kCountedMs = 120'000;  // about sizes in the bucket: lists everything
constexpr std::int64_t kDefaultBeatMs = 30'000;
constexpr std::int64_t kFreshMs = 10'000;  // a replica may take this long to notice a step

std::int64_t steady_ms() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

bool is_older(const std::optional<std::int64_t>& when, std::int64_t limit) {
    return !when || steady_ms() - *when >= limit;
}

const char* name_of_signature(Signer::How how) {
    switch (how) {
        case Signer::How::kUnsigned: return "unsigned";
        case Signer::How::kUnchecked: return "unchecked";
        case Signer::How::kTrusted: return "trusted";
        case Signer::How::kCertified: return "certified";
    }
    return "unsigned";
}

Json commit_json(const HistoryEntry& entry, const HistoryEntry* before) {
    const CommitSummary& line = entry.commit;
    Json json = {{"seq", line.seq},
                 {"epoch", line.epoch},
                 {"step", line.step},
                 {"kind", name_of(line.kind)},
                 {"makes_state", entry.makes_state},
                 {"time_ms", line.time_ms},
                 {"delta_bytes", line.delta_bytes},
                 {"anchor_bytes", line.anchor_bytes},
                 {"changed_elements", line.changed_elements},
                 {"total_elements", line.total_elements},
                 {"state", to_text(line.state)},
                 {"writer", line.writer},
                 {"signer", nullptr},
                 {"signature", name_of_signature(entry.signature)},
                 {"rewind_from", nullptr},
                 {"hash", line.hash},
                 {"previous", entry.previous},
                 {"follows", nullptr}};
    if (!line.signer.empty()) json["signer"] = line.signer;
    if (line.rewind_from) json["rewind_from"] = *line.rewind_from;
    if (before != nullptr && before->commit.seq + 1 == line.seq) {
        json["follows"] =
            entry.previous == before->commit.hash && before->commit.epoch <= line.epoch;
    }
    return json;
}

}  // namespace

std::string shown_address(const std::string& url) {
    const auto scheme = url.find("://");
    if (scheme == std::string::npos || url.starts_with("file://")) return url;
    const std::string rest = url.substr(scheme + 3, url.find_first_of("?#") - (scheme + 3));
    const auto at = rest.substr(0, rest.find('/')).rfind('@');
    return url.substr(0, scheme + 3) + (at == std::string::npos ? rest : rest.substr(at + 1));
}

RunView::RunView(std::string url, RunAccess access, ViewOptions options)
    : url_(std::move(url)), access_(std::move(access)), options_(std::move(options)) {}

Result<void> RunView::refresh() {
    // Some stores count requests, and say how often one may ask.
    const StoreTerms terms = access_.where.store->terms();
    if (!is_older(refreshed_ms_, std::max<std::int64_t>(kHeadMs, terms.poll_ms))) return {};
    const std::uint64_t known = lines_.empty() ? 0 : lines_.back().commit.seq;
    auto history = read_history(access_.where, known, options_.commits, access_.options);
    if (!history) return std::unexpected(std::move(history).error());
    const bool news = !history->lines.empty();
    if (news) {
        merged_deltas_ = std::move(history->merged_deltas);
        full_bytes_ = history->full_bytes;
    }
    for (HistoryEntry& line : history->lines) lines_.push_back(std::move(line));
    while (lines_.size() > options_.commits) lines_.pop_front();
    if (news || is_older(status_ms_, kStatusMs)) {
        if (auto read = refresh_status(); !read) return read;
    }
    if (is_older(replicas_ms_, terms.few_requests ? kStatusMs : kReplicasMs)) {
        auto replicas = read_replicas(access_.where, access_.options);
        if (!replicas) return std::unexpected(std::move(replicas).error());
        replicas_ = std::move(*replicas);
        replicas_ms_ = steady_ms();
    }
    refreshed_ms_ = steady_ms();
    return {};
}

Result<void> RunView::refresh_status() {
    const bool count = is_older(counted_ms_, kCountedMs);
    auto status = read_status(access_.where, access_.options, count);
    if (!status) return std::unexpected(std::move(status).error());
    if (count) {
        counted_ms_ = steady_ms();
    } else {
        status->stored_objects = status_.stored_objects;
        status->stored_bytes = status_.stored_bytes;
    }
    status_ = std::move(*status);
    status_ms_ = steady_ms();
    return {};
}

const char* RunView::health_of(const ReplicaHealth& replica) const {
    if (replica.summary.status == "stopped") return "stopped";
    if (replica.summary.seen_ms > 3 * replica.every_ms.value_or(kDefaultBeatMs)) return "dead";
    // What it says is as old as its heartbeat: it is behind if a newer step had been there for a
    // while by then.
    const std::int64_t heard = access_.options.clock->now_ms() - replica.summary.seen_ms - kFreshMs;
    const bool behind = std::ranges::any_of(lines_, [&](const HistoryEntry& entry) {
        return entry.makes_state && entry.commit.seq > replica.summary.seq &&
               entry.commit.time_ms < heard;
    });
    return behind ? "behind" : "ok";
}

Json RunView::replicas_json() const {
    Json replicas = Json::array();
    const std::int64_t since = replicas_ms_ ? steady_ms() - *replicas_ms_ : 0;
    for (ReplicaHealth replica : replicas_) {
        replica.summary.seen_ms += since;
        Json json = {{"id", replica.summary.id},
                     {"seq", replica.summary.seq},
                     {"step", replica.summary.step},
                     {"lag_steps", replica.summary.lag_steps},
                     {"seen_ms", replica.summary.seen_ms},
                     {"every_ms", nullptr},
                     {"pause_ms", nullptr},
                     {"status", replica.summary.status},
                     {"health", health_of(replica)}};
        if (replica.every_ms) json["every_ms"] = *replica.every_ms;
        if (replica.pause_us) json["pause_ms"] = static_cast<double>(*replica.pause_us) / 1000;
        replicas.push_back(std::move(json));
    }
    return replicas;
}

Result<Json> RunView::head() {
    const std::scoped_lock lock(mutex_);
    if (auto read = refresh(); !read) return std::unexpected(std::move(read).error());
    const std::int64_t since = status_ms_ ? steady_ms() - *status_ms_ : 0;
    return Json{{"head_seq", lines_.empty() ? 0 : lines_.back().commit.seq},
                {"head_age_ms", status_.head ? status_.head_age_ms + since : 0},
                {"expired", status_.expired},
                {"replicas", replicas_json()}};
}

Result<Json> RunView::run() {
    auto newest = head();
    if (!newest) return newest;
    const std::scoped_lock lock(mutex_);
    const std::uint64_t elements = status_.head ? status_.head->total_elements : 0;
    const bool exclusive = status_.mode == CommitMode::kExclusive;
    Json json = {{"url", shown_address(url_)},
                 {"run", status_.run},
                 {"mode", exclusive ? "exclusive" : "single_writer"},
                 {"wisp_version", kVersion},
                 {"head_step", nullptr},
                 {"floor_seq", status_.floor_seq},
                 {"full_bytes", full_bytes_ != 0 ? full_bytes_ : 2 * elements},
                 {"full_bytes_from", full_bytes_ != 0 ? "anchor"
                                     : elements != 0  ? "estimate"
                                                      : "unknown"},
                 {"total_elements", elements},
                 {"anchors", Json::array()},
                 {"merged_deltas", Json::array()},
                 {"branches", status_.branches},
                 {"stored_objects", status_.stored_objects},
                 {"stored_bytes", status_.stored_bytes},
                 {"join_objects", status_.join_objects},
                 {"join_bytes", status_.join_bytes},
                 {"exponents", !options_.work.empty()},
                 {"made_ms", access_.options.clock->now_ms()}};
    json.update(*newest);
    if (status_.head) json["head_step"] = status_.head->step;
    for (const AnchorSummary& anchor : status_.anchors) {
        json["anchors"].push_back({{"seq", anchor.seq},
                                   {"step", anchor.step},
                                   {"bytes", anchor.bytes},
                                   {"base_name", anchor.base_name}});
    }
    for (const MergedDeltaSummary& merged_delta : merged_deltas_) {
        json["merged_deltas"].push_back({{"from_seq", merged_delta.from_seq},
                                         {"from_step", merged_delta.from_step},
                                         {"to_seq", merged_delta.to_seq},
                                         {"to_step", merged_delta.to_step},
                                         {"bytes", merged_delta.bytes}});
    }
    return json;
}

Result<Json> RunView::commits(std::uint64_t after) {
    const std::scoped_lock lock(mutex_);
    if (auto read = refresh(); !read) return std::unexpected(std::move(read).error());
    Json commits = Json::array();
    const HistoryEntry* before = nullptr;
    for (const HistoryEntry& line : lines_) {
        if (line.commit.seq > after) commits.push_back(commit_json(line, before));
        before = &line;
    }
    return Json{{"commits", std::move(commits)}};
}

Result<Json> RunView::everything(std::uint64_t steps) {
    auto about = run();
    if (!about) return about;
    auto log = commits(0);
    if (!log) return log;
    auto table = layers(0);
    while (table && (*table)["pending"] != 0) table = layers(0);
    if (!table) return table;
    Json json = {{"run", std::move(*about)},
                 {"commits", (*log)["commits"]},
                 {"layers", std::move(*table)},
                 {"steps", Json::object()},
                 {"exponents", Json::object()}};
    std::vector<std::uint64_t> wanted;
    for (const Json& commit : json["commits"]) {
        if (commit["delta_bytes"] != 0) wanted.push_back(commit["seq"].get<std::uint64_t>());
    }
    // Ascending: a replica goes forward at the price of the deltas between.
    const std::size_t skipped = wanted.size() - std::min<std::size_t>(wanted.size(), steps);
    for (const std::uint64_t seq : std::span(wanted).subspan(skipped)) {
        auto detail = step(seq);
        if (!detail) {
            if (detail.error().kind == ErrorKind::kUnavailable) return detail;
            continue;
        }
        json["steps"][std::to_string(seq)] = std::move(*detail);
        if (options_.work.empty()) continue;
        if (auto counted = exponents(seq)) {
            json["exponents"][std::to_string(seq)] = std::move(*counted);
        } else if (counted.error().kind != ErrorKind::kGap) {
            return counted;
        }
    }
    return json;
}

}  // namespace wisp::cli
