#include "run_view.hpp"
#include "verdict_json.hpp"
#include "version.hpp"
#include "wisp/run_status.hpp"

#include <algorithm>

namespace wisp::cli {
namespace {

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

Json RunView::replicas_json() const {
    Json replicas = Json::array();
    const std::vector<HistoryEntry> commits = judged_commits();
    const std::int64_t now = access_.options.clock->now_ms();
    for (const ReplicaHealth& replica : replicas_now()) {
        Json json = {{"id", replica.summary.id},
                     {"seq", replica.summary.seq},
                     {"step", replica.summary.step},
                     {"lag_steps", replica.summary.lag_steps},
                     {"seen_ms", replica.summary.seen_ms},
                     {"every_ms", nullptr},
                     {"pause_ms", nullptr},
                     {"status", name_of(replica.summary.status)},
                     {"health", name_of(condition_of(replica, commits, now))}};
        if (replica.every_ms) json["every_ms"] = *replica.every_ms;
        if (replica.pause_us) json["pause_ms"] = static_cast<double>(*replica.pause_us) / 1000;
        replicas.push_back(std::move(json));
    }
    return replicas;
}

Json RunView::overview() const {
    const std::scoped_lock lock(mutex_);
    const bool known = read_ms_ != 0 || trouble_;
    Json json = {{"url", shown_address(url_)},
                 {"run", status_.run},
                 {"verdict", known ? verdict_json(verdict()) : Json(nullptr)},
                 {"trouble", trouble_json()},
                 {"head_step", nullptr},
                 {"head_age_ms", nullptr},
                 {"interval_ms", nullptr},
                 {"replicas", nullptr},
                 {"lag_steps", nullptr}};
    if (const auto usual = usual_interval_ms(judged_commits())) json["interval_ms"] = *usual;
    if (status_.head) {
        json["head_step"] = status_.head->step;
        json["head_age_ms"] = status_.head_age_ms + steady_ms() - *status_ms_;
    }
    if (!replicas_ms_) return json;
    std::uint64_t lag = 0;
    for (const ReplicaHealth& replica : replicas_) {
        const ReplicaSummary& told = replica.summary;
        if (told.status != ReplicaStatus::kStopped) lag = std::max(lag, told.lag_steps);
    }
    json["replicas"] = replicas_.size();
    json["lag_steps"] = lag;
    return json;
}

Result<Json> RunView::head() {
    note_asked();
    const std::scoped_lock lock(mutex_);
    if (auto there = require_data(); !there) return std::unexpected(there.error());
    const std::int64_t since = status_ms_ ? steady_ms() - *status_ms_ : 0;
    return Json{{"head_seq", lines_.empty() ? 0 : lines_.back().commit.seq},
                {"head_age_ms", status_.head ? Json(status_.head_age_ms + since) : Json(nullptr)},
                {"expired", status_.expired},
                {"verdict", verdict_json(verdict())},
                {"trouble", trouble_json()},
                {"read_ms", read_ms_},
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
                 {"interval_ms", nullptr},
                 {"floor_seq", status_.floor_seq},
                 {"full_bytes", nullptr},
                 {"full_bytes_from", full_bytes_ != 0 ? "anchor"
                                     : elements != 0  ? "estimate"
                                                      : "unknown"},
                 {"total_elements", nullptr},
                 {"anchors", Json::array()},
                 {"merged_deltas", Json::array()},
                 {"branches", status_.branches},
                 {"stored_objects", nullptr},
                 {"stored_bytes", nullptr},
                 {"join_objects", nullptr},
                 {"join_bytes", nullptr},
                 {"exponents", !options_.work.empty()},
                 {"made_ms", access_.options.clock->now_ms()}};
    json.update(*newest);
    if (status_.join) {
        json["join_objects"] = status_.join->objects;
        json["join_bytes"] = status_.join->bytes;
    }
    if (elements != 0) json["total_elements"] = elements;
    if (full_bytes_ != 0 || elements != 0) {
        json["full_bytes"] = full_bytes_ != 0 ? full_bytes_ : 2 * elements;
    }
    if (status_.head) json["head_step"] = status_.head->step;
    if (const auto usual = usual_interval_ms(judged_commits())) json["interval_ms"] = *usual;
    if (status_.stored) {
        json["stored_objects"] = status_.stored->objects;
        json["stored_bytes"] = status_.stored->bytes;
    }
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
    note_asked();
    const std::scoped_lock lock(mutex_);
    if (auto there = require_data(); !there) return std::unexpected(there.error());
    Json commits = Json::array();
    const HistoryEntry* before = nullptr;
    for (const HistoryEntry& line : lines_) {
        if (line.commit.seq > after) commits.push_back(commit_json(line, before));
        before = &line;
    }
    return Json{{"commits", std::move(commits)}};
}

Result<Json> RunView::everything(std::uint64_t steps) {
    counts_at_once_ = true;
    if (auto read = refresh(); !read) return std::unexpected(std::move(read).error());
    auto about = run();
    if (!about) return about;
    auto log = commits(0);
    if (!log) return log;
    auto heard = beats(0);
    if (!heard) return heard;
    auto table = layers(0);
    while (table && (*table)["pending"] != 0) table = layers(0);
    if (!table) return table;
    Json json = {{"run", std::move(*about)},    {"commits", (*log)["commits"]},
                 {"layers", std::move(*table)}, {"beats", std::move(*heard)},
                 {"steps", Json::object()},     {"exponents", Json::object()}};
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
