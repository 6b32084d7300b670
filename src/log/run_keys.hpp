// The name of every object of a run, in one place: doc/protocol.md section 2.
//
//   format.json                               what the run is; created once
//   commits/<20-digit seq>                    the log, one small object each; never deleted
//   anchors/step_000040-e3-<hash>.safetensors whole states, and what a loader wants beside them
//   deltas/step_000042-e3-<hash>.safetensors  one step; merged ones step_000048_from_000032-e3-…
//   latest                                    a hint at the newest commit, never authority
//   replicas/<id>  branches/<20-digit slot>   who follows, who stands on this run
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace wisp {

inline constexpr std::string_view kRunKey = "format.json";
inline constexpr std::string_view kLatestKey = "latest";
inline constexpr std::string_view kCommitsPrefix = "commits/";
inline constexpr std::string_view kAnchorsPrefix = "anchors/";
inline constexpr std::string_view kDeltasPrefix = "deltas/";
inline constexpr std::string_view kReplicasPrefix = "replicas/";
inline constexpr std::string_view kBranchesPrefix = "branches/";

std::string commit_key(std::uint64_t seq);
/// The seq of what follows kCommitsPrefix in a key, if it is one.
std::optional<std::uint64_t> commit_seq_of(std::string_view name);
std::string branch_key(std::uint64_t slot);

/// Where in a file's cut into several objects one of them stands; a file of one object has none.
struct PartNumber {
    std::size_t index = 0;
    std::size_t count = 1;
};

/// What a data object is named by. The hash is that of its bytes, so that a key never means two
/// things; the epoch makes sure that a key given up by retention is never used again.
struct ObjectName {
    std::uint64_t step = 0;
    std::uint64_t epoch = 0;
    std::string_view sha256;
    PartNumber part;
};
std::string anchor_key(const ObjectName& name);
/// Configuration, tokenizer and the like.
std::string side_file_key(const ObjectName& name);
std::string delta_key(const ObjectName& name);
/// What one writer adds to an interleaved anchor or delta.
std::string anchor_segment_key(const ObjectName& name);
std::string delta_segment_key(const ObjectName& name);
std::string merged_key(const ObjectName& name, std::uint64_t from_step);

/// Whether a commit may name `key` as data: anchors/… or deltas/… and one part of [A-Za-z0-9._-].
bool is_data_key(std::string_view key);

/// Whether `path` leads from one run to another: "../other", parts of [A-Za-z0-9._-] after any
/// number of "..".
bool is_run_path(std::string_view path);

/// What "../other" means seen from the run at `prefix`; nothing when it leads out of the store.
std::optional<std::string> resolve_run_path(std::string_view prefix, std::string_view path);
std::string run_path_between(std::string_view from_prefix, std::string_view to_prefix);

/// 6 digits, more when needed, as TRL writes it.
std::string step_text(std::uint64_t step);

// TRL's layout: the same two folders, plain names, nothing else.
std::string trl_anchor_key(std::uint64_t step);
std::string trl_delta_key(std::uint64_t step);
/// The step of a key in TRL's layout, if it is one.
std::optional<std::uint64_t> trl_step_of(std::string_view key, std::string_view prefix);

}  // namespace wisp
