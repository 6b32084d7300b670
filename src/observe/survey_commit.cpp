#include <fmt/format.h>

#include "base/decimal.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "delta/delta_directory.hpp"
#include "delta/delta_layout.hpp"
#include "log/lineage.hpp"
#include "wisp/control.hpp"
#include "wisp/history.hpp"

namespace wisp {
namespace {

/// Headers of deltas in blocks have two tensors and some twelve keys.
constexpr std::size_t kHeadBytes = 16 * 1024;
/// A directory of a million tensors is larger; such a delta is fetched whole, into a file.
constexpr std::uint64_t kMostDirectoryBytes = std::uint64_t{16} << 20;

Result<Bytes> read_range(const Location& where, const StoredPart& part, std::uint64_t offset,
                         std::uint64_t count) {
    Bytes bytes(static_cast<std::size_t>(count));
    WISP_ASSIGN(const std::size_t got, where.store->read(where.key(part.key), offset, bytes));
    if (got != bytes.size()) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} ends before the {} bytes its commit names; run 'wisp scrub'",
                                shown(part.key), part.bytes));
    }
    return bytes;
}

std::optional<std::uint64_t> number_in(const Metadata& metadata, std::string_view key) {
    const auto at = metadata.find(std::string(key));
    if (at == metadata.end()) return std::nullopt;
    return whole_number(at->second);
}

struct SurveyedDelta {
    Codec codec;
    DeltaDirectory directory;
};

/// Nothing when the file is of another form, or larger than what is read piecemeal.
Result<std::optional<SurveyedDelta>> read_directory(const Location& where, const StoredPart& part) {
    using Found = std::optional<SurveyedDelta>;
    WISP_ASSIGN(const Bytes head,
                read_range(where, part, 0, std::min<std::uint64_t>(part.bytes, kHeadBytes)));
    if (head.size() < 8) return Found();
    const auto header_bytes = load_le<std::uint64_t>(head.data());
    if (header_bytes > head.size() - 8) return Found();
    WISP_ASSIGN(const SafetensorsHeader header, parse_safetensors_head(head, part.bytes, part.key));
    const SafetensorsEntry* blocks = header.find(kBlocksTensor);
    const SafetensorsEntry* packed = header.find(kDirectoryTensor);
    const auto plain_bytes = number_in(header.metadata, kDirectorySizeKey);
    const auto named = header.metadata.find("codec");
    if (blocks == nullptr || packed == nullptr || !plain_bytes) return Found();
    if (named == header.metadata.end()) return Found();
    const auto codec = parse_codec(named->second);
    if (!codec) return Found();
    const auto slices = header.metadata.contains(std::string(kSlicesKey))
                            ? number_in(header.metadata, kSlicesKey)
                            : std::optional<std::uint64_t>(0);
    if (!slices || *slices > limits::kSlices) return Found();
    const std::uint64_t size = packed->end - packed->begin;
    if (size > kMostDirectoryBytes || *plain_bytes > 4 * kMostDirectoryBytes) return Found();
    WISP_ASSIGN(const Bytes bytes,
                read_range(where, part, header.data_offset + packed->begin, size));
    WISP_ASSIGN(DeltaDirectory directory,
                parse_directory(bytes, *plain_bytes, blocks->end - blocks->begin,
                                static_cast<unsigned>(*slices)));
    return SurveyedDelta{*codec, std::move(directory)};
}

}  // namespace

Result<FileReport> survey_commit(const Location& where, std::uint64_t seq,
                                 const RunOptions& options) {
    const StopScope scope(options.stop);
    WISP_ASSIGN(const CommitLog log, CommitLog::open(where, options));
    WISP_ASSIGN(Lineage history, Lineage::of_newest(log));
    WISP_ASSIGN(const LogEntry entry, history.at(seq));
    const auto& delta = entry.commit.delta;
    if (!delta) {
        return fail(ErrorKind::kNotFound,
                    fmt::format("commit {} of {} has no delta", seq, shown(where.url)));
    }
    if (delta->interleaved || !delta->at.empty() || delta->parts.size() != 1) {
        return inspect_commit(where, seq, options);
    }
    auto surveyed = read_directory(where, delta->parts.front());
    if (!surveyed) {
        Error error = std::move(surveyed).error();
        error.text = fmt::format("delta of commit {}: {}", seq, error.text);
        return std::unexpected(std::move(error));
    }
    if (!*surveyed) return inspect_commit(where, seq, options);
    FileReport report;
    report.codec = (*surveyed)->codec;
    report.file_bytes = delta->bytes();
    report.total_elements = entry.commit.total_elements;
    report.changed_elements = entry.commit.changed_elements;
    report.step = entry.commit.state.step;
    report.base = entry.commit.base;
    report.result = entry.commit.state.digest;
    report.schema_digest = entry.commit.schema;
    for (const DirectoryTensor& tensor : (*surveyed)->directory.tensors) {
        TensorReport row;
        row.tensor = tensor.info;
        row.element_count = element_count_of(tensor.info);
        row.changed_elements = tensor.changed_elements;
        for (const std::uint64_t bytes : tensor.block_bytes) row.stored_bytes += bytes;
        report.payload_bytes += row.stored_bytes;
        report.tensors.push_back(std::move(row));
    }
    return report;
}

}  // namespace wisp
