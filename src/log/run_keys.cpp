#include "log/run_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/decimal.hpp"
#include "checkpoint/file_name.hpp"

namespace wisp {
namespace {

constexpr std::string_view kWeightsSuffix = ".safetensors";
constexpr std::string_view kSegmentSuffix = ".segment";
constexpr std::string_view kSideSuffix = ".file";
constexpr std::size_t kKeyHashDigits = 16;
constexpr std::size_t kLongestName = 200;

std::string part_suffix(PartNumber part) {
    return part.count == 1 ? "" : fmt::format(".part_{:05}_of_{:05}", part.index + 1, part.count);
}

std::string object_name(const ObjectName& name, std::string_view suffix,
                        std::string_view from = "") {
    return fmt::format("{}{}-e{}-{}{}{}", step_text(name.step), from, name.epoch,
                       name.sha256.substr(0, kKeyHashDigits), suffix, part_suffix(name.part));
}

std::vector<std::string_view> split(std::string_view path) {
    std::vector<std::string_view> parts;
    while (!path.empty()) {
        const std::size_t slash = path.find('/');
        parts.push_back(path.substr(0, slash));
        path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
    }
    return parts;
}

std::string join(const std::vector<std::string_view>& parts) {
    return fmt::format("{}", fmt::join(parts, "/"));
}

}  // namespace

std::string step_text(std::uint64_t step) {
    return fmt::format("step_{:06}", step);
}

std::string commit_key(std::uint64_t seq) {
    return fmt::format("{}{:020}", kCommitsPrefix, seq);
}

std::optional<std::uint64_t> commit_seq_of(std::string_view name) {
    return name.size() == 20 ? whole_number(name) : std::nullopt;
}

std::string branch_key(std::uint64_t slot) {
    return fmt::format("{}{:020}", kBranchesPrefix, slot);
}

std::string anchor_key(const ObjectName& name) {
    return fmt::format("{}{}", kAnchorsPrefix, object_name(name, kWeightsSuffix));
}

std::string side_file_key(const ObjectName& name) {
    return fmt::format("{}{}", kAnchorsPrefix, object_name(name, kSideSuffix));
}

std::string delta_key(const ObjectName& name) {
    return fmt::format("{}{}", kDeltasPrefix, object_name(name, kWeightsSuffix));
}

std::string anchor_segment_key(const ObjectName& name) {
    return fmt::format("{}{}", kAnchorsPrefix, object_name(name, kSegmentSuffix));
}

std::string delta_segment_key(const ObjectName& name) {
    return fmt::format("{}{}", kDeltasPrefix, object_name(name, kSegmentSuffix));
}

std::string merged_key(const ObjectName& name, std::uint64_t from_step) {
    return fmt::format("{}{}", kDeltasPrefix,
                       object_name(name, kWeightsSuffix, fmt::format("_from_{:06}", from_step)));
}

bool is_data_key(std::string_view key) {
    for (const std::string_view prefix : {kAnchorsPrefix, kDeltasPrefix}) {
        if (key.starts_with(prefix)) return is_file_name(key.substr(prefix.size()));
    }
    return false;
}

bool is_run_path(std::string_view path) {
    const auto parts = split(path);
    if (parts.empty() || parts.size() > 64 || parts.front() != ".." || path.ends_with('/')) {
        return false;
    }
    bool climbing = true;
    for (const std::string_view part : parts) {
        if (part == "..") {
            if (!climbing) return false;
            continue;
        }
        climbing = false;
        if (part.empty() || part == "." || part.size() > kLongestName) return false;
        // The parts of a run's own address are its owner's choice; only control is refused.
        if (std::ranges::any_of(part,
                                [](char c) { return static_cast<unsigned char>(c) < 0x20; })) {
            return false;
        }
    }
    return true;
}

std::optional<std::string> resolve_run_path(std::string_view prefix, std::string_view path) {
    if (!is_run_path(path)) return std::nullopt;
    std::vector<std::string_view> parts = split(prefix);
    for (const std::string_view part : split(path)) {
        if (part != "..") {
            parts.push_back(part);
        } else if (parts.empty()) {
            return std::nullopt;
        } else {
            parts.pop_back();
        }
    }
    return join(parts);
}

std::string run_path_between(std::string_view from_prefix, std::string_view to_prefix) {
    const auto from = split(from_prefix);
    const auto to = split(to_prefix);
    std::size_t shared = 0;
    while (shared < from.size() && shared < to.size() && from[shared] == to[shared]) ++shared;
    // A run inside the other one's prefix still needs one step up to be told from a key.
    if (shared == from.size() && shared > 0) --shared;
    std::vector<std::string_view> parts(from.size() - shared, "..");
    parts.insert(parts.end(), to.begin() + static_cast<std::ptrdiff_t>(shared), to.end());
    return join(parts);
}

std::string trl_anchor_key(std::uint64_t step) {
    return fmt::format("{}{}{}", kAnchorsPrefix, step_text(step), kWeightsSuffix);
}

std::string trl_delta_key(std::uint64_t step) {
    return fmt::format("{}{}{}", kDeltasPrefix, step_text(step), kWeightsSuffix);
}

std::optional<std::uint64_t> trl_step_of(std::string_view key, std::string_view prefix) {
    constexpr std::string_view kLead = "step_";
    if (!key.starts_with(prefix) || !key.ends_with(kWeightsSuffix)) return std::nullopt;
    key.remove_prefix(prefix.size());
    key.remove_suffix(std::min(key.size(), kWeightsSuffix.size()));
    if (!key.starts_with(kLead)) return std::nullopt;
    key.remove_prefix(kLead.size());
    std::uint64_t step = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), step);
    if (error != std::errc() || end != key.data() + key.size() || key.size() < 6) {
        return std::nullopt;
    }
    return step;
}

}  // namespace wisp
