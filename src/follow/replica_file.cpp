#include "follow/replica_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/file_name.hpp"
#include "log/run_keys.hpp"
#include "log/strict_json.hpp"

namespace wisp {
namespace {

constexpr std::size_t kRunDigits = 32;
constexpr std::size_t kHashDigits = 64;

nlohmann::ordered_json to_json(const ReplicaRecord& record) {
    return {{"run", record.run},
            {"epoch", record.epoch},
            {"seq", record.seq},
            {"commit_hash", record.commit_hash},
            {"state_seq", record.state_seq},
            {"step", record.step},
            {"state", to_text(record.state)},
            {"unproven", record.unproven},
            {"chain_id", record.chain_id},
            {"cumulative_delta_bytes", record.cumulative_delta_bytes},
            {"state_index", record.state_index},
            {"certificate_serial", record.certificate_serial}};
}

ReplicaRecord parse_record(FieldReader in) {
    ReplicaRecord record;
    record.run = in.hex("run", kRunDigits);
    record.epoch = in.number("epoch");
    record.seq = in.number("seq");
    record.commit_hash = in.text("commit_hash");
    if (!record.commit_hash.empty()) record.commit_hash = in.hex("commit_hash", kHashDigits);
    record.state_seq = in.number("state_seq");
    record.step = in.number("step");
    record.state = in.digest("state");
    record.unproven = in.flag("unproven");
    record.chain_id = in.number("chain_id");
    record.cumulative_delta_bytes = in.number("cumulative_delta_bytes");
    record.state_index = in.number("state_index");
    record.certificate_serial = in.number("certificate_serial");
    return record;
}

std::vector<std::string> parse_names(FieldReader& in, const char* name) {
    std::vector<std::string> names;
    for (const auto& value : in.array(name, limits::kFilesPerAnchor)) {
        if (!value.is_string() || !is_file_name(value.get<std::string>())) {
            in.refuse("a file name that is not a plain one");
            return {};
        }
        names.push_back(value.get<std::string>());
    }
    return names;
}

}  // namespace

std::string write_replica_file(const ReplicaFile& file) {
    nlohmann::ordered_json json = {{"wisp", "replica"}, {"version", 1}};
    if (file.at) json["at"] = to_json(*file.at);
    if (file.next) json["next"] = to_json(*file.next);
    json["files"] = file.files;
    if (!file.incoming.empty()) {
        json["incoming"] = file.incoming;
        json["moving"] = file.moving;
    }
    return json.dump(1) + "\n";
}

Result<ReplicaFile> parse_replica_file(std::string_view text) {
    WISP_ASSIGN(const nlohmann::json json, parse_strict_json(text));
    std::string problem;
    FieldReader in(json, problem);
    ReplicaFile file;
    if (in.text("wisp") != "replica" || in.number("version") != 1) in.refuse("another format");
    if (in.has("at")) file.at = parse_record(in.object("at"));
    if (in.has("next")) file.next = parse_record(in.object("next"));
    file.files = parse_names(in, "files");
    if (in.has("incoming")) {
        file.incoming = in.text("incoming");
        if (!is_file_name(file.incoming)) in.refuse("a folder name that is not a plain one");
        file.moving = parse_names(in, "moving");
    }
    if (!problem.empty()) return fail(ErrorKind::kCorrupt, problem);
    return file;
}

Result<ReplicaFile> read_replica_file(const std::filesystem::path& path) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return ReplicaFile{};
    WISP_ASSIGN(const MappedFile mapped, MappedFile::open(path));
    auto parsed = parse_replica_file(as_text(mapped.bytes()));
    if (parsed) return parsed;
    // Written atomically, so this is damage; the weights can always be fetched again, but a replica
    // must not forget how far it was: nobody else could tell it of a rollback.
    return fail(ErrorKind::kCorrupt, fmt::format("{} is damaged ({}); to start over, remove it",
                                                 shown(path.string()), parsed.error().text));
}

Result<void> save_replica_file(const std::filesystem::path& path, const ReplicaFile& file,
                               bool durable) {
    WISP_ASSIGN(PendingFile pending, PendingFile::create(path));
    WISP_TRY(pending.append(as_bytes(write_replica_file(file))));
    return durable ? pending.commit() : pending.commit_unsynced();
}

}  // namespace wisp
