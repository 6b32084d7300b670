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
// What a commit's list "must" may name: a reader of files that are interleaved.
constexpr std::string_view kMustInterleaved = "interleaved";
constexpr std::uint64_t kCommitVersion = 1;
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
    if (file.interleaved) json["interleaved"] = true;
    if (file.head) json["head"] = {{"bytes", file.head->bytes}, {"sha256", file.head->sha256}};
    json["parts"] = Json::array();
    for (const StoredPart& part : file.parts) {
        json["parts"].push_back(
            {{"key", part.key}, {"bytes", part.bytes}, {"sha256", part.sha256}});
    }
    return json;
}

Json to_json(const StateName& state) {
    return {{"seq", state.seq},
            {"step", state.step},
            {"digest", to_text(state.digest)},
            {"chain_id", state.chain_id},
            {"cumulative_delta_bytes", state.cumulative_delta_bytes},
            {"state_index", state.state_index}};
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
    if (anchor.sliced) json["sliced"] = true;
    json["files"] = Json::array();
    for (const StoredFile& file : anchor.files) json["files"].push_back(to_json(file));
    return json;
}

Json to_json(const Manifest& manifest) {
    Json json = {{"anchors", Json::array()}, {"merged_deltas", Json::array()}};
    for (const AnchorEntry& anchor : manifest.anchors) json["anchors"].push_back(to_json(anchor));
    for (const MergedDelta& merged_delta : manifest.merged_deltas) {
        json["merged_deltas"].push_back({{"from", to_json(merged_delta.from)},
                                         {"to", to_json(merged_delta.to)},
                                         {"delta", to_json(merged_delta.delta)}});
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
    if (in.has("interleaved")) file.interleaved = in.flag("interleaved");
    std::uint64_t total = 0;
    for (const auto& value : in.array("parts", limits::kPartsPerFile)) {
        FieldReader part = in.element(value);
        StoredPart stored{part.text("key"), part.number("bytes"), part.hex("sha256", kHashDigits)};
        if (in.ok() && !is_data_key(stored.key)) in.refuse("the key " + shown(stored.key));
        if (__builtin_add_overflow(total, stored.bytes, &total)) in.refuse("sizes that overflow");
        file.parts.push_back(std::move(stored));
    }
    if (file.parts.empty()) in.refuse("a file without parts");
    if (in.has("head")) {
        FieldReader head = in.object("head");
        file.head = StoredHead{head.number("bytes"), head.hex("sha256", kHashDigits)};
        if (in.ok() && (file.interleaved || file.head->bytes == 0 || file.head->bytes > total)) {
            in.refuse("the head of a file that has none");
        }
    }
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
    state.chain_id = in.number("chain_id");
    state.cumulative_delta_bytes = in.number("cumulative_delta_bytes");
    state.state_index = in.number("state_index");
    return state;
}

void check_files(FieldReader& in, const AnchorEntry& anchor) {
    const auto unnamed = std::ranges::count_if(
        anchor.files, [](const StoredFile& file) { return file.name.empty(); });
    if (anchor.files.empty()) in.refuse("an anchor without files");
    if (anchor.sliced && anchor.base) in.refuse("a sliced anchor over a base");
    if (anchor.sliced && unnamed != 1) in.refuse("a sliced anchor that is not one delta");
    if (anchor.base && (anchor.files.size() != 1 || unnamed != 1)) {
        in.refuse("an anchor over a base that is not one delta");
    }
    if (!anchor.sliced && !anchor.base && unnamed > 0) in.refuse("a file without a name");
    for (const StoredFile& file : anchor.files) {
        if (anchor.sliced && file.name.empty() != file.head.has_value()) {
            in.refuse("a sliced anchor whose delta is not the file that has a head");
        }
    }
}

Manifest parse_manifest(FieldReader in, std::uint64_t newest) {
    Manifest manifest;
    for (const auto& value : in.array("anchors", limits::kManifestEntries)) {
        FieldReader entry = in.element(value);
        AnchorEntry anchor;
        anchor.state = parse_state(entry.object("state"));
        anchor.schema = entry.hex("schema", kRunDigits);
        if (entry.has("base")) {
            anchor.base = entry.digest("base");
            anchor.base_name = entry.text("base_name");
        }
        if (entry.has("sliced")) anchor.sliced = entry.flag("sliced");
        for (const auto& file : entry.array("files", limits::kFilesPerAnchor)) {
            anchor.files.push_back(parse_file(in.element(file)));
        }
        check_files(in, anchor);
        if (anchor.state.seq > newest) in.refuse("an anchor of a state that is yet to come");
        if (!manifest.anchors.empty() && manifest.anchors.back().state.seq >= anchor.state.seq) {
            in.refuse("anchors out of order");
        }
        manifest.anchors.push_back(std::move(anchor));
    }
    for (const auto& value : in.array("merged_deltas", limits::kManifestEntries)) {
        FieldReader entry = in.element(value);
        MergedDelta merged_delta{parse_state(entry.object("from")), parse_state(entry.object("to")),
                                 parse_file(entry.object("delta"))};
        if (merged_delta.from.seq >= merged_delta.to.seq || merged_delta.to.seq > newest) {
            in.refuse("a merged delta that does not lead forward");
        }
        manifest.merged_deltas.push_back(std::move(merged_delta));
    }
    return manifest;
}

bool has_interleaved(const Commit& commit) {
    if (commit.delta && commit.delta->interleaved) return true;
    if (!commit.manifest) return false;
    const auto interleaved = [](const StoredFile& file) { return file.interleaved; };
    return std::ranges::any_of(commit.manifest->merged_deltas, interleaved, &MergedDelta::delta) ||
           std::ranges::any_of(commit.manifest->anchors, [&](const AnchorEntry& anchor) {
               return std::ranges::any_of(anchor.files, interleaved);
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
    if (commit.manifest_at.seq >= commit.seq || (commit.manifest_at.seq != 0 && commit.manifest)) {
        in.refuse("a manifest that is not where it says");
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
    if (in.has("manifest_at")) commit.manifest_at = parse_ref(in.object("manifest_at"));
    if (in.has("manifest"))
        commit.manifest = parse_manifest(in.object("manifest"), commit.state.seq);
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
    Json json = {{"wisp", kCommitMark},   {"version", kCommitVersion},
                 {"run", commit.run},     {"seq", commit.seq},
                 {"epoch", commit.epoch}, {"kind", name_of(commit.kind)}};
    if (commit.previous.seq != 0) json["previous"] = to_json(commit.previous);
    if (!commit.ancestors.empty()) {
        json["ancestors"] = Json::array();
        for (const CommitRef& ref : commit.ancestors) json["ancestors"].push_back(to_json(ref));
    }
    if (has_interleaved(commit)) json["must"] = {kMustInterleaved};
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
    if (commit.manifest_at.seq != 0) json["manifest_at"] = to_json(commit.manifest_at);
    if (commit.manifest) json["manifest"] = to_json(*commit.manifest);
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
        std::ranges::all_of(must, [](const auto& what) { return what == kMustInterleaved; });
    if (in.ok() && (in.number("version") > kCommitVersion || !known)) {
        return fail(ErrorKind::kUnsupported,
                    fmt::format("{} needs a newer wisp; upgrade", shown(label)));
    }
    ParsedCommit parsed{parse_body(in), body, object.substr(end + 1)};
    // A reader that does not know the word would take the parts for the file.
    if (must.empty() && has_interleaved(parsed.commit))
        in.refuse("an interleaved file that it does not announce");
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
