// Any bytes as one of the small records of a run. What is read is written back to the same
// meaning, names lead nowhere but where they may, and refusals are of the kinds that are promised.
#include "base/limits.hpp"
#include "checkpoint/file_name.hpp"
#include "follow/replica_file.hpp"
#include "fuzz_input.hpp"
#include "log/branch_pin.hpp"
#include "log/commit.hpp"
#include "log/heartbeat.hpp"
#include "log/run_keys.hpp"
#include "log/run_record.hpp"
#include "log/tombstone.hpp"

using namespace wisp;

namespace {

void check_file(const StoredFile& file) {
    FUZZ_CHECK(!file.parts.empty());
    FUZZ_CHECK(file.name.empty() || is_file_name(file.name));
    FUZZ_CHECK(file.at.empty() || is_run_path(file.at));
    std::uint64_t total = 0;
    for (const StoredPart& part : file.parts) {
        FUZZ_CHECK(is_data_key(part.key));
        FUZZ_CHECK(part.sha256.size() == 64);
        FUZZ_CHECK(!__builtin_add_overflow(total, part.bytes, &total));
    }
}

void check_commit(std::string_view object) {
    const auto parsed = parse_commit(object, "fuzz");
    if (!parsed) {
        FUZZ_CHECK(parsed.error().kind == ErrorKind::kCorrupt ||
                   parsed.error().kind == ErrorKind::kUnsupported);
        return;
    }
    FUZZ_CHECK(parsed->body.size() + parsed->signature_block.size() == object.size());
    FUZZ_CHECK(parsed->body.ends_with('\n') && object.size() <= limits::kCommitBytes);
    const Commit& commit = parsed->commit;
    FUZZ_CHECK(commit.seq > 0 && commit.epoch > 0 && commit.state.seq <= commit.seq);
    FUZZ_CHECK(commit.floor <= commit.state.seq && commit.manifest_at.seq < commit.seq);
    if (commit.delta) check_file(*commit.delta);
    if (commit.manifest) {
        for (const AnchorEntry& anchor : commit.manifest->anchors) {
            FUZZ_CHECK(!anchor.files.empty() && anchor.state.seq <= commit.seq);
            for (const StoredFile& file : anchor.files) check_file(file);
        }
        for (const MergedDelta& merged_delta : commit.manifest->merged_deltas)
            check_file(merged_delta.delta);
    }
    const std::string text = write_commit(commit);
    if (text.size() > limits::kCommitBytes) return;
    const auto again = parse_commit(text, "fuzz");
    FUZZ_CHECK(again && write_commit(again->commit) == text);
    FUZZ_CHECK(again->commit.manifest == commit.manifest && again->commit.delta == commit.delta);
    FUZZ_CHECK(again->commit.state == commit.state && again->signature_block.empty());
}

void check_tombstone(std::string_view object) {
    const auto tombstone = parse_tombstone(object);
    if (!tombstone) return;
    FUZZ_CHECK(!parse_commit(object, "fuzz"));
    const auto again = parse_tombstone(write_tombstone(*tombstone));
    FUZZ_CHECK(again && again->seq == tombstone->seq && again->floor == tombstone->floor);
}

void check_run_record(std::string_view text) {
    const auto record = parse_run_record(text, "fuzz");
    if (!record) {
        FUZZ_CHECK(record.error().kind == ErrorKind::kCorrupt ||
                   record.error().kind == ErrorKind::kUnsupported);
        return;
    }
    const auto again = parse_run_record(write_run_record(*record), "fuzz");
    FUZZ_CHECK(again && again->nonce == record->nonce && again->origin == record->origin);
    FUZZ_CHECK(!record->origin || is_run_path(record->origin->at));
}

void check_replica_file(std::string_view text) {
    const auto file = parse_replica_file(text);
    if (!file) {
        FUZZ_CHECK(file.error().kind == ErrorKind::kCorrupt);
        return;
    }
    for (const std::string& name : file->files) FUZZ_CHECK(is_file_name(name));
    for (const std::string& name : file->moving) FUZZ_CHECK(is_file_name(name));
    FUZZ_CHECK(file->incoming.empty() || is_file_name(file->incoming));
    const auto again = parse_replica_file(write_replica_file(*file));
    FUZZ_CHECK(again && again->at == file->at && again->next == file->next);
}

void check_heartbeat(std::string_view text) {
    const auto heartbeat = parse_heartbeat(text);
    if (!heartbeat) return;
    const auto again = parse_heartbeat(write_heartbeat(*heartbeat));
    FUZZ_CHECK(again && again->seq == heartbeat->seq && again->status == heartbeat->status);
}

void check_branch_pin(std::string_view text) {
    const auto pin = parse_branch_pin(text);
    if (!pin) return;
    for (const std::string& key : pin->keys) FUZZ_CHECK(is_data_key(key));
    const auto again = parse_branch_pin(write_branch_pin(*pin));
    FUZZ_CHECK(again && again->keys == pin->keys && again->at == pin->at);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check_commit(text);
    check_tombstone(text);
    check_run_record(text);
    check_replica_file(text);
    check_heartbeat(text);
    check_branch_pin(text);
    if (const auto path = resolve_run_path("a/b", text)) {
        FUZZ_CHECK(is_run_path(text) && !path->starts_with('/') && !path->ends_with('/'));
        for (const char* climbing : {"/../", "/./", "//"}) {
            FUZZ_CHECK(("/" + *path + "/").find(climbing) == std::string::npos || path->empty());
        }
    }
    return 0;
}
