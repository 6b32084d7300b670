#include "wisp/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/journal_path.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/shard_index.hpp"

namespace wisp {
namespace fs = std::filesystem;

struct Checkpoint::State {
    fs::path path;
    bool is_folder = false;
    std::vector<CheckpointFile> files;
    std::vector<MappedFile> maps;  // one per file
    Schema schema;
    std::vector<TensorPlace> places;  // one per tensor of the schema
    Metadata metadata;
};

namespace {

struct FoundTensor {
    TensorInfo info;
    TensorPlace place;
};

/// The .safetensors files of a folder that has no index.
Result<std::vector<std::string>> lone_file(const fs::path& folder) {
    std::vector<std::string> names;
    std::string torch_file;
    bool distributed = false;
    std::error_code error;
    for (const auto& item : fs::directory_iterator(folder, error)) {
        const std::string name = item.path().filename().string();
        if (item.is_regular_file(error) && name.ends_with(".safetensors") && name[0] != '.') {
            names.push_back(name);
        }
        if (name.starts_with("pytorch_model") && name.ends_with(".bin")) torch_file = name;
        distributed = distributed || name.ends_with(".distcp");
    }
    if (error) return std::unexpected(file_error("list", folder, error.value()));
    if (names.size() == 1) return names;
    if (names.empty() && distributed) {
        return fail(
            ErrorKind::kInvalid,
            fmt::format("folder {} was written by torch.distributed.checkpoint, whose index "
                        "is a pickle that only torch should read; publish it from Python "
                        "with wisp.folders.publish_distributed, or have it written as "
                        "safetensors (HuggingFaceStorageWriter, save_pretrained)",
                        shown(folder.string())));
    }
    if (names.empty() && !torch_file.empty()) {
        return fail(ErrorKind::kInvalid,
                    fmt::format("folder {} holds PyTorch weights ({}) and no safetensors; load it "
                                "with from_pretrained and write it with save_pretrained",
                                shown(folder.string()), shown(torch_file)));
    }
    return fail(ErrorKind::kInvalid,
                fmt::format("folder {} holds {} .safetensors files and no {}; name one file, or a "
                            "folder with its index",
                            shown(folder.string()), names.size(), kShardIndexName));
}

/// Every tensor is where the index says, and nothing else is there.
Result<void> match_index(const std::map<std::string, std::string>& index,
                         const std::vector<FoundTensor>& found,
                         const std::vector<CheckpointFile>& files, const fs::path& folder) {
    const auto complain = [&](const std::string& tensor, std::string what) {
        return fail(ErrorKind::kCorrupt,
                    fmt::format("{}: tensor {} {}; write or fetch the folder again",
                                shown((folder / kShardIndexName).string()), shown(tensor), what));
    };
    std::set<std::string_view> seen;
    for (const FoundTensor& tensor : found) {
        const std::string file = files[tensor.place.file].path.filename().string();
        const auto at = index.find(tensor.info.name);
        if (at == index.end() || at->second != file) {
            return complain(tensor.info.name,
                            fmt::format("is in {} but the index does not say so", shown(file)));
        }
        seen.insert(tensor.info.name);
    }
    for (const auto& [name, file] : index) {
        if (!seen.contains(name)) {
            return complain(name, fmt::format("should be in {} but is not", shown(file)));
        }
    }
    return {};
}

}  // namespace

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::open(const fs::path& path, PendingApply pending) {
    auto state = std::make_unique<State>();
    state->path = path;
    std::error_code error;
    const auto status = fs::status(path, error);
    if (!fs::exists(status)) return std::unexpected(file_error("open", path, ENOENT));
    state->is_folder = fs::is_directory(status);

    if (pending == PendingApply::kRefuse && fs::exists(journal_path(path), error)) {
        return fail(
            ErrorKind::kConflict,
            fmt::format("{} is in the middle of an interrupted in-place apply (journal {}); "
                        "run that apply again to finish or undo it",
                        shown(path.string()), shown(journal_path(path).string())));
    }
    bool has_index = false;
    std::map<std::string, std::string> index;
    if (!state->is_folder) {
        state->files.push_back({path, 0, 0});
    } else {
        const fs::path index_path = path / kShardIndexName;
        std::set<std::string> names;
        has_index = fs::exists(index_path, error);
        if (has_index) {
            WISP_ASSIGN(const MappedFile json, MappedFile::open(index_path));
            WISP_ASSIGN(index, parse_shard_index(as_text(json.bytes()), index_path.string()));
            for (const auto& [tensor, file] : index) names.insert(file);
        } else {
            WISP_ASSIGN(const std::vector<std::string> lone, lone_file(path));
            names.insert(lone.begin(), lone.end());
        }
        for (const std::string& name : names) state->files.push_back({path / name, 0, 0});
    }

    std::vector<FoundTensor> found;
    for (std::size_t i = 0; i < state->files.size(); ++i) {
        CheckpointFile& file = state->files[i];
        WISP_ASSIGN(MappedFile map, MappedFile::open(file.path));
        file.size_bytes = map.bytes().size();
        WISP_ASSIGN(SafetensorsHeader header, parse_safetensors(map.bytes(), file.path.string()));
        file.data_offset = header.data_offset;
        if (i == 0) state->metadata = std::move(header.metadata);
        for (SafetensorsEntry& entry : header.entries) {
            found.push_back({std::move(entry.info),
                             {i, header.data_offset + entry.begin, entry.end - entry.begin}});
        }
        state->maps.push_back(std::move(map));
    }
    if (has_index) WISP_TRY(match_index(index, found, state->files, path));

    std::ranges::sort(found, {},
                      [](const FoundTensor& t) { return std::string_view(t.info.name); });
    std::vector<TensorInfo> tensors;
    for (FoundTensor& tensor : found) {
        state->places.push_back(tensor.place);
        tensors.push_back(std::move(tensor.info));
    }
    WISP_ASSIGN(state->schema, Schema::make(std::move(tensors)));
    return Checkpoint(std::move(state));
}

const fs::path& Checkpoint::path() const {
    return state_->path;
}
bool Checkpoint::is_folder() const {
    return state_->is_folder;
}
const Schema& Checkpoint::schema() const {
    return state_->schema;
}
const std::vector<CheckpointFile>& Checkpoint::files() const {
    return state_->files;
}
const TensorPlace& Checkpoint::place(std::size_t tensor) const {
    return state_->places[tensor];
}
const std::map<std::string, std::string>& Checkpoint::metadata() const {
    return state_->metadata;
}

std::span<const std::byte> Checkpoint::bytes(std::size_t tensor) const {
    const TensorPlace& place = state_->places[tensor];
    return state_->maps[place.file].bytes().subspan(static_cast<std::size_t>(place.offset),
                                                    static_cast<std::size_t>(place.size_bytes));
}

std::span<const std::byte> Checkpoint::header_bytes(std::size_t file) const {
    return state_->maps[file].bytes().first(
        static_cast<std::size_t>(state_->files[file].data_offset));
}

}  // namespace wisp
