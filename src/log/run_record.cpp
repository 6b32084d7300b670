#include "log/run_record.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/limits.hpp"
#include "base/sha256.hpp"
#include "base/text.hpp"
#include "log/checked_line.hpp"
#include "log/run_keys.hpp"
#include "log/strict_json.hpp"

namespace wisp {
namespace {

constexpr std::string_view kMark = "run";
constexpr std::uint64_t kRecordVersion = 1;
constexpr std::string_view kExclusive = "exclusive";
constexpr std::string_view kSingleWriter = "single_writer";
constexpr std::size_t kRecordDigits = 32;
// What fits into the engines of one host needs no slices, which cost some hundredths of the bytes.
constexpr std::uint64_t kSlicedFrom = std::uint64_t{64} << 30;
constexpr unsigned kSlicesBySize = 4;

}  // namespace

std::string write_run_record(const RunRecord& record) {
    nlohmann::ordered_json json = {{"wisp", kMark},
                                   {"version", kRecordVersion},
                                   {"nonce", record.nonce},
                                   {"created_ms", record.created_ms},
                                   {"mode", record.exclusive ? kExclusive : kSingleWriter},
                                   {"codec", name_of(record.codec)}};
    if (record.slices) json["slices"] = *record.slices;
    if (!record.roots.empty()) json["roots"] = nlohmann::json::array();
    for (const PublicKey& root : record.roots) json["roots"].push_back(root.to_text());
    if (record.origin) {
        json["origin"] = {{"at", record.origin->at},
                          {"run", record.origin->run},
                          {"state_seq", record.origin->state_seq}};
    }
    return with_check(json.dump() + "\n");
}

Result<RunRecord> parse_run_record(std::string_view text, std::string_view label) {
    const auto broken = [&](std::string_view problem) {
        return fail(ErrorKind::kCorrupt, fmt::format("{} does not describe a wisp run: it has {}; "
                                                     "check the address",
                                                     shown(label), problem));
    };
    auto json = parse_strict_json(text);
    if (!json) return broken(json.error().text);
    std::string problem;
    FieldReader in(*json, problem);
    if (in.text("wisp") != kMark) in.refuse("no mark of a run");
    if (in.ok() && (in.number("version") > kRecordVersion || !in.array("must", 64).empty())) {
        return fail(ErrorKind::kUnsupported,
                    fmt::format("{} needs a newer wisp; upgrade", shown(label)));
    }
    RunRecord record;
    record.nonce = in.hex("nonce", kRecordDigits);
    record.created_ms = in.time("created_ms");
    const std::string mode = in.text("mode");
    record.exclusive = mode == kExclusive;
    if (!record.exclusive && mode != kSingleWriter) in.refuse("the unknown mode " + shown(mode));
    const std::string codec = in.text("codec");
    record.codec = parse_codec(codec).value_or(Codec::kPlain);
    if (!holds_blocks(record.codec)) in.refuse("the unknown codec " + shown(codec));
    if (in.has("slices")) {
        const std::uint64_t slices = in.number("slices");
        if (slices > limits::kSlices) in.refuse("too many slices");
        if (slices > 0 && record.codec != Codec::kSwift) in.refuse("slices of another codec");
        record.slices = static_cast<unsigned>(slices);
    }
    for (const auto& value : in.array("roots", limits::kRootKeys)) {
        auto root = PublicKey::parse(value.is_string() ? value.get<std::string>() : "");
        if (root) {
            record.roots.push_back(*root);
        } else {
            in.refuse("a root that is no key");
        }
    }
    if (in.has("roots") && record.roots.empty()) in.refuse("an empty list of roots");
    if (in.has("origin")) {
        FieldReader origin = in.object("origin");
        record.origin = RunRecord::Origin{origin.text("at"), origin.hex("run", kRecordDigits),
                                          origin.number("state_seq")};
        if (in.ok() && !is_run_path(record.origin->at)) in.refuse("a path to a run that is none");
    }
    if (!problem.empty()) return broken(problem);
    return record;
}

unsigned slices_of(const RunRecord& record, std::uint64_t weight_bytes) {
    if (record.codec != Codec::kSwift) return 0;
    return record.slices.value_or(weight_bytes >= kSlicedFrom ? kSlicesBySize : 0);
}

std::string run_id_of(std::string_view text) {
    return to_hex(sha256(as_bytes(text))).substr(0, kRecordDigits);
}

}  // namespace wisp
