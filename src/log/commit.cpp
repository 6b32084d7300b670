#include "log/commit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "checkpoint/file_name.hpp"
#include "log/checked_line.hpp"
#include "log/run_keys.hpp"
#include "log/strict_json.hpp"

namespace wisp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCommitMark = "commit";
// What a commit's list "must" may name: a reader of files that are woven.
constexpr std::string_view kMustWoven = "woven";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kHashDigits = 64;
constexpr std::size_t kRunDigits = 32;

constexpr std::array<std::pair<CommitKind, std::string_view>, 7> kKinds{{
    {CommitKind::kDelta, "delta"},
    {CommitKind::kAnchor, "anchor"},
    {CommitKind::kMerge, "merge"},
    {CommitKind::kFloor, "floor"},
    {CommitKind::kFence, "fence"},
    {CommitKind::kHeartbeat, "heartbeat"},
    {CommitKind::kBranch, "branch"},
}};

Json to_json(const StoredFile& file) {
    Json json;
    if (!file.name.empty()) json["name"] = file.name;
    if (!file.at.empty()) json["at"] = file.at;
    if (file.woven) json["woven"] = true;
    json["parts"] = Json::array();
    for (const StoredPart& part : file.parts) {
        json["parts"].push_back(
            {{"key", part.key}, {"bytes", part.bytes}, {"sha256", part.sha256}});
    }
    return json;
}

Json to_json(const StateName& state) {
    return {{"seq", state.seq},   {"step", state.step},           {"digest", to_text(state.digest)},
            {"line", state.line}, {"travelled", state.travelled}, {"count", state.count}};
}

Json to_json(const CommitRef& ref) {
    return {{"seq", ref.seq}, {"hash", ref.hash}};
}

Json to_json(const AnchorEntry& anchor) {
    Json json = {{"state", to_json(anchor.state)}, {"schema", anchor.schema}};
    if (anchor.base) {
        json["base_name"] = anchor.base_name;
        json["base"] = to_text(*anchor.base);
    }
    json["files"] = Json::array();
    for (const StoredFile& file : anchor.files) json["files"].push_back(to_json(file));
    return json;
}

Json to_json(const RoadMap& map) {
    Json json = {{"anchors", Json::array()}, {"roads", Json::array()}};
    for (const AnchorEntry& anchor : map.anchors) json["anchors"].push_back(to_json(anchor));
    for (const RoadEntry& road : map.roads) {
        json["roads"].push_back({{"from", to_json(road.from)},
                                 {"to", to_json(road.to)},
                                 {"delta", to_json(road.delta)}});
    }
    return json;
}

StoredFile parse_file(FieldReader in) {
    StoredFile file;
    if (in.has("name")) {
        file.name = in.text("name");
        if (in.ok() && !is_file_name(file.name)) {
            in.refuse("the file name " + shown(file.name) + ", which is not a plain one");
        }
    }
    if (in.has("at")) {
        file.at = in.text("at");
        if (in.ok() && !is_run_path(file.at)) in.refuse("a path to a run that is none");
    }
    if (in.has("woven")) file.woven = in.flag("woven");
    std::uint64_t total = 0;
    for (const auto& value : in.array("parts", limits::kPartsPerFile)) {
        FieldReader part = in.element(value);
        StoredPart stored{part.text("key"), part.number("bytes"), part.hex("sha256", kHashDigits)};
        if (in.ok() && !is_data_key(stored.key)) in.refuse("the key " + shown(stored.key));
        if (__builtin_add_overflow(total, stored.bytes, &total)) in.refuse("sizes that overflow");
        file.parts.push_back(std::move(stored));
    }
    if (file.parts.empty()) in.refuse("a file without parts");
    return file;
}

CommitRef parse_ref(FieldReader in) {
    CommitRef ref{in.number("seq"), in.hex("hash", kHashDigits)};
    if (ref.seq == 0) in.refuse("a reference to no commit");
    return ref;
}

StateName parse_state(FieldReader in) {
    StateName state;
    state.seq = in.number("seq");
    state.step = in.number("step");
    state.digest = in.digest("digest");
    state.line = in.number("line");
    state.travelled = in.number("travelled");
    state.count = in.number("count");
    return state;
}

RoadMap parse_map(FieldReader in, std::uint64_t newest) {
    RoadMap map;
    for (const auto& value : in.array("anchors", limits::kMapEntries)) {
        FieldReader entry = in.element(value);
        AnchorEntry anchor;
        anchor.state = parse_state(entry.object("state"));
        anchor.schema = entry.hex("schema", kRunDigits);
        if (entry.has("base")) {
            anchor.base = entry.digest("base");
            anchor.base_name = entry.text("base_name");
        }
        for (const auto& file : entry.array("files", limits::kFilesPerAnchor)) {
            anchor.files.push_back(parse_file(in.element(file)));
            if (!anchor.base && anchor.files.back().name.empty())
                in.refuse("a file without a name");
        }
        if (anchor.files.empty()) in.refuse("an anchor without files");
        if (anchor.state.seq > newest) in.refuse("an anchor of a state that is yet to come");
        if (!map.anchors.empty() && map.anchors.back().state.seq >= anchor.state.seq) {
            in.refuse("anchors out of order");
        }
        map.anchors.push_back(std::move(anchor));
    }
    for (const auto& value : in.array("roads", limits::kMapEntries)) {
        FieldReader entry = in.element(value);
        RoadEntry road{parse_state(entry.object("from")), parse_state(entry.object("to")),
                       parse_file(entry.object("delta"))};
        if (road.from.seq >= road.to.seq || road.to.seq > newest) {
            in.refuse("a merged delta that does not lead forward");
        }
        map.roads.push_back(std::move(road));
    }
    return map;
}

bool has_woven(const Commit& commit) {
    if (commit.delta && commit.delta->woven) return true;
    if (!commit.map) return false;
    const auto woven = [](const StoredFile& file) { return file.woven; };
    return std::ranges::any_of(commit.map->roads, woven, &RoadEntry::delta) ||
           std::ranges::any_of(commit.map->anchors, [&](const AnchorEntry& anchor) {
               return std::ranges::any_of(anchor.files, woven);
           });
}

/// What the types alone do not rule out.
void check_sense(FieldReader& in, const Commit& commit) {
    if (commit.seq == 0 || commit.epoch == 0) in.refuse("a seq or epoch of 0");
    std::uint64_t above = commit.seq;
    const auto descends = [&](const CommitRef& ref) {
        return ref.seq < std::exchange(above, ref.seq);
    };
    if (!descends(commit.previous) || !std::ranges::all_of(commit.ancestors, descends)) {
        in.refuse("a chain that does not lead back");
    }
    if (commit.state.seq > commit.seq) in.refuse("a state that is yet to come");
    if (commit.map_at.seq >= commit.seq || (commit.map_at.seq != 0 && commit.map)) {
        in.refuse("a map that is not where it says");
    }
    if (commit.floor > commit.state.seq || commit.anchor_seq > commit.state.seq) {
        in.refuse("a floor or anchor above the state");
    }
    if (commit.delta && (!commit.base || !commit.makes_state())) in.refuse("a delta from nowhere");
    const bool must = commit.kind == CommitKind::kDelta || commit.kind == CommitKind::kBranch;
    const bool may = must || commit.kind == CommitKind::kAnchor;
    if (commit.makes_state() ? !may : must) in.refuse("a kind that does not fit what it does");
    if (commit.kind == CommitKind::kDelta && !commit.base) in.refuse("a delta without a base");
    if (!commit.delta && commit.base && *commit.base != commit.state.digest) {
        in.refuse("a change without a delta");
    }
}

Commit parse_body(FieldReader in) {
    Commit commit;
    commit.run = in.hex("run", kRunDigits);
    commit.seq = in.number("seq");
    commit.epoch = in.number("epoch");
    const std::string kind = in.text("kind");
    bool known = false;
    for (const auto& [value, name] : kKinds) {
        if (name == kind) commit.kind = value, known = true;
    }
    if (!known) in.refuse("the unknown kind " + shown(kind));
    if (in.has("previous")) commit.previous = parse_ref(in.object("previous"));
    for (const auto& value : in.array("ancestors", limits::kAncestors)) {
        commit.ancestors.push_back(parse_ref(in.element(value)));
    }
    commit.nonce = in.hex("nonce", kRunDigits);
    commit.writer = in.text("writer");
    if (in.has("owner")) commit.owner = in.hex("owner", kRunDigits);
    commit.time_ms = in.time("time_ms");
    if (in.has("expires_ms")) commit.expires_ms = in.time("expires_ms");
    commit.state = parse_state(in.object("state"));
    commit.schema = in.hex("schema", kRunDigits);
    commit.total_elements = in.number("total_elements");
    commit.changed_elements = in.number("changed_elements");
    if (in.has("base")) commit.base = in.digest("base");
    if (in.has("delta")) commit.delta = parse_file(in.object("delta"));
    if (in.has("rewind_from")) commit.rewind_from = in.number("rewind_from");
    commit.floor = in.number("floor");
    commit.anchor_seq = in.number("anchor_seq");
    if (in.has("map_at")) commit.map_at = parse_ref(in.object("map_at"));
    if (in.has("map")) commit.map = parse_map(in.object("map"), commit.state.seq);
    check_sense(in, commit);
    return commit;
}

}  // namespace

std::string_view name_of(CommitKind kind) {
    for (const auto& [value, name] : kKinds) {
        if (value == kind) return name;
    }
    return "unknown";
}

std::uint64_t StoredFile::bytes() const {
    std::uint64_t total = 0;
    for (const StoredPart& part : parts) total += part.bytes;
    return total;
}

std::uint64_t AnchorEntry::bytes() const {
    std::uint64_t total = 0;
    for (const StoredFile& file : files) total += file.bytes();
    return total;
}

std::string write_commit(const Commit& commit) {
    Json json = {{"wisp", kCommitMark}, {"version", kVersion},   {"run", commit.run},
                 {"seq", commit.seq},   {"epoch", commit.epoch}, {"kind", name_of(commit.kind)}};
    if (commit.previous.seq != 0) json["previous"] = to_json(commit.previous);
    if (!commit.ancestors.empty()) {
        json["ancestors"] = Json::array();
        for (const CommitRef& ref : commit.ancestors) json["ancestors"].push_back(to_json(ref));
    }
    if (has_woven(commit)) json["must"] = {kMustWoven};
    json["nonce"] = commit.nonce;
    json["writer"] = commit.writer;
    if (!commit.owner.empty()) json["owner"] = commit.owner;
    json["time_ms"] = commit.time_ms;
    if (commit.expires_ms != 0) json["expires_ms"] = commit.expires_ms;
    json["state"] = to_json(commit.state);
    json["schema"] = commit.schema;
    json["total_elements"] = commit.total_elements;
    json["changed_elements"] = commit.changed_elements;
    if (commit.base) json["base"] = to_text(*commit.base);
    if (commit.delta) json["delta"] = to_json(*commit.delta);
    if (commit.rewind_from) json["rewind_from"] = *commit.rewind_from;
    json["floor"] = commit.floor;
    json["anchor_seq"] = commit.anchor_seq;
    if (commit.map_at.seq != 0) json["map_at"] = to_json(commit.map_at);
    if (commit.map) json["map"] = to_json(*commit.map);
    return with_check(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Result<ParsedCommit> parse_commit(std::string_view object, std::string_view label) {
    const auto broken = [&](std::string_view problem) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} is not a valid commit: it has {}; if fetching it again does "
                                "not help, the run's log is damaged",
                                shown(label), problem));
    };
    const std::size_t end = object.find('\n');
    if (object.size() > limits::kCommitBytes) return broken("more than 1 MiB");
    if (end == std::string_view::npos) return broken("no complete first line");
    const std::string_view body = object.substr(0, end + 1);
    auto json = parse_strict_json(body);
    if (!json) return broken(json.error().text);
    std::string problem;
    FieldReader in(*json, problem);
    if (in.text("wisp") != kCommitMark) in.refuse("no mark of a commit");
    const auto& must = in.array("must", 64);
    const bool known =
        std::ranges::all_of(must, [](const auto& what) { return what == kMustWoven; });
    if (in.ok() && (in.number("version") > kVersion || !known)) {
        return fail(ErrorKind::kUnsupported,
                    fmt::format("{} needs a newer wisp; upgrade", shown(label)));
    }
    ParsedCommit parsed{parse_body(in), body, object.substr(end + 1)};
    // Whoever does not know the word would take the parts for the file.
    if (must.empty() && has_woven(parsed.commit))
        in.refuse("a woven file that it does not announce");
    if (!problem.empty()) return broken(problem);
    return parsed;
}

std::vector<CommitRef> ancestors_after(const Commit& parent, const std::string& parent_hash,
                                       std::uint64_t seq) {
    // The parent's answer for a stretch of slots is the child's too while both lie in it. What a
    // branch's first commit was built on stands in another log.
    std::vector<CommitRef> known{{parent.seq, parent_hash}};
    if (parent.kind != CommitKind::kBranch && parent.previous.seq != 0) {
        known.push_back(parent.previous);
        known.insert(known.end(), parent.ancestors.begin(), parent.ancestors.end());
    }
    std::vector<CommitRef> found;
    std::uint64_t lowest = parent.seq;
    for (unsigned bits = 4; bits < 64 && (seq >> bits) != 0; bits += 4) {
        const auto older = std::ranges::find_if(
            known, [&](const CommitRef& ref) { return (ref.seq >> bits) < (seq >> bits); });
        if (older == known.end()) break;
        if (older->seq == lowest) continue;
        lowest = older->seq;
        found.push_back(*older);
    }
    return found;
}

}  // namespace wisp
