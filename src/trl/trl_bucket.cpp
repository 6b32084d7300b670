#include "trl/trl_bucket.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <system_error>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/safetensors.hpp"
#include "log/run_keys.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kChunkBytes = 16 << 20;
constexpr std::size_t kPage = 1000;
// Six digits sort as numbers; from a million on they do not, and a listing that starts behind a
// late key would pass over what follows it.
constexpr std::uint64_t kSortedBelow = 900'000;

std::string_view prefix_of(TrlObject::Kind kind) {
    return kind == TrlObject::Kind::kAnchor ? kAnchorsPrefix : kDeltasPrefix;
}

std::string name_of(TrlObject::Kind kind, std::uint64_t step) {
    return kind == TrlObject::Kind::kAnchor ? trl_anchor_key(step) : trl_delta_key(step);
}

Error gone(const std::string& key) {
    return {ErrorKind::kGap, fmt::format("{} is gone from the bucket", shown(key))};
}

Result<void> read_exactly(Store& store, const std::string& key, std::uint64_t offset,
                          std::span<std::byte> into) {
    auto count = store.read(key, offset, into);
    if (!count && count.error().kind == ErrorKind::kNotFound) return std::unexpected(gone(key));
    if (!count) return std::unexpected(std::move(count).error());
    if (*count == into.size()) return {};
    return fail(ErrorKind::kCorrupt,
                fmt::format("{} ends before byte {}, though it was listed as longer; it may be "
                            "being written again: try later",
                            shown(key), offset + into.size()));
}

}  // namespace

std::string TrlObject::name() const {
    return name_of(kind, step);
}

TrlBucket::TrlBucket(const Location& where, fs::path folder, unsigned parallel)
    : where_(where), folder_(std::move(folder)), parallel_(std::max(1U, parallel)) {}

Result<std::vector<TrlObject>> TrlBucket::list(TrlObject::Kind kind,
                                               std::optional<std::uint64_t> after) {
    const std::string prefix = where_.key(prefix_of(kind));
    std::string last;
    if (after && *after < kSortedBelow) last = where_.key(name_of(kind, *after));
    std::vector<TrlObject> objects;
    for (;;) {
        WISP_ASSIGN(const auto page, where_.store->list(prefix, last, kPage));
        for (const ListedObject& listed : page) {
            const auto step = trl_step_of(listed.key, prefix);
            // A second name for one step would make two objects of it.
            if (!step || listed.key != where_.key(name_of(kind, *step))) continue;
            if (!after || *step > *after) objects.push_back({kind, *step, listed.info});
        }
        if (page.size() < kPage) break;
        last = page.back().key;
    }
    std::ranges::sort(objects, {}, &TrlObject::step);
    return objects;
}

Result<fs::path> TrlBucket::fetch(const TrlObject& object) {
    const auto start = std::chrono::steady_clock::now();
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) return std::unexpected(file_error("create", folder_, error.value()));
    const std::string key = where_.key(object.name());
    const fs::path path =
        folder_ / fmt::format("{}-{}.safetensors",
                              object.kind == TrlObject::Kind::kAnchor ? "anchor" : "delta",
                              object.step);
    // Nothing tells what an earlier try left from what lies in the bucket now.
    const FileHandle out(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (out.get() < 0) return std::unexpected(file_error("create", path, errno));
    const std::uint64_t chunks = (object.info.size_bytes + kChunkBytes - 1) / kChunkBytes;
    WISP_TRY(ordered_parallel<std::uint64_t>(
        chunks, parallel_,
        [&](std::uint64_t index, unsigned) -> Result<std::uint64_t> {
            const std::uint64_t at = index * kChunkBytes;
            Bytes buffer(
                static_cast<std::size_t>(std::min(kChunkBytes, object.info.size_bytes - at)));
            WISP_TRY(read_exactly(*where_.store, key, at, buffer));
            WISP_TRY(write_at(out, at, buffer, path));
            return buffer.size();
        },
        [&](std::uint64_t, std::uint64_t bytes) -> Result<void> {
            counts_.bytes += bytes;
            return {};
        }));
    ++counts_.objects;
    counts_.fetch_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return path;
}

Result<Schema> TrlBucket::schema_of(const TrlObject& anchor) {
    const std::string key = where_.key(anchor.name());
    Bytes head(8);
    WISP_TRY(read_exactly(*where_.store, key, 0, head));
    const auto header_bytes = load_le<std::uint64_t>(head.data());
    if (header_bytes > limits::kSafetensorsHeaderBytes ||
        header_bytes + 8 > anchor.info.size_bytes) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{} is not a valid safetensors file: its header claims {} bytes; "
                                "write the file again",
                                shown(key), header_bytes));
    }
    head.resize(static_cast<std::size_t>(8 + header_bytes));
    WISP_TRY(read_exactly(*where_.store, key, 8, std::span(head).subspan(8)));
    WISP_ASSIGN(const SafetensorsHeader header,
                parse_safetensors_head(head, anchor.info.size_bytes, key));
    std::vector<TensorInfo> tensors;
    for (const SafetensorsEntry& entry : header.entries) tensors.push_back(entry.info);
    return Schema::make(std::move(tensors));
}

void TrlBucket::clear() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
}

std::vector<TrlObject> moves_of(const std::vector<TrlObject>& deltas,
                                const std::vector<TrlObject>& anchors) {
    std::map<std::uint64_t, TrlObject> by_step;
    for (const TrlObject& delta : deltas) by_step.emplace(delta.step, delta);
    for (const TrlObject& anchor : anchors) by_step.emplace(anchor.step, anchor);
    std::vector<TrlObject> moves;
    for (const auto& [step, object] : by_step) moves.push_back(object);
    return moves;
}

}  // namespace wisp
