#include "checkpoint/checkpoint_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/file.hpp"
#include "base/paths.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "checkpoint/file_name.hpp"

namespace wisp {
namespace fs = std::filesystem;
namespace {

/// What a trainer keeps in the folder for itself: its own state, pickles, and empty files that say
/// that the folder is complete. No loader of the model asks for them, and some are larger than it.
bool is_of_trainer(const fs::directory_entry& item, const std::string& name) {
    constexpr std::string_view kEndings[] = {".pt", ".pth", ".pkl", ".ckpt", ".distcp"};
    for (const std::string_view ending : kEndings) {
        if (name.ends_with(ending)) return true;
    }
    if (name == "trainer_state.json" || name == "training_args.bin") return true;
    std::error_code error;
    return name.find('.') == std::string::npos && item.file_size(error) == 0 && !error;
}

}  // namespace

Result<std::vector<CheckpointSource>> files_of(const Checkpoint& checkpoint) {
    std::vector<CheckpointSource> sources;
    if (!checkpoint.is_folder()) {
        sources.push_back({checkpoint.path(), "model.safetensors", true});
        return sources;
    }
    for (const CheckpointFile& file : checkpoint.files()) {
        const std::string name = file.path.filename().string();
        if (!is_file_name(name)) {
            return fail(ErrorKind::kInvalid,
                        fmt::format("the weights file {} has a name that not every machine can "
                                    "take over; use letters, digits, '.', '_' and '-'",
                                    shown(name)));
        }
        sources.push_back({file.path, name, true});
    }
    std::error_code error;
    for (const auto& item : fs::directory_iterator(checkpoint.path(), error)) {
        const std::string name = item.path().filename().string();
        if (!item.is_regular_file() || !is_file_name(name) || name.ends_with(".safetensors") ||
            is_of_trainer(item, name)) {
            continue;
        }
        sources.push_back({item.path(), name, false});
    }
    if (error) return std::unexpected(file_error("list", checkpoint.path(), error.value()));
    std::ranges::sort(sources, {}, &CheckpointSource::name);
    return sources;
}

WeightsLayout weights_layout(const Schema& schema, const Metadata& metadata) {
    WeightsLayout layout;
    for (std::size_t i = 0; i < schema.tensors().size(); ++i) layout.order.push_back(i);
    // Wide elements first, so that every tensor is aligned to its own.
    std::ranges::stable_sort(layout.order, std::ranges::greater{}, [&](std::size_t i) {
        return traits_of(schema.tensors()[i].dtype).element_bytes;
    });
    std::vector<SafetensorsEntry> entries;
    for (const std::size_t i : layout.order) {
        const TensorInfo& tensor = schema.tensors()[i];
        const std::uint64_t bytes =
            element_count_of(tensor) * traits_of(tensor.dtype).element_bytes;
        entries.push_back({tensor, layout.data_bytes, layout.data_bytes + bytes});
        layout.data_bytes += bytes;
    }
    layout.header = write_safetensors_header(entries, metadata);
    return layout;
}

Result<void> write_weights(const Weights& weights, const fs::path& path, const Metadata& metadata) {
    const WeightsLayout layout = weights_layout(weights.schema(), metadata);
    WISP_ASSIGN(PendingFile file, PendingFile::create(path));
    WISP_TRY(file.append(layout.header));
    WISP_TRY(file.reserve(file.size_bytes() + layout.data_bytes));
    for (const std::size_t i : layout.order) WISP_TRY(file.append(weights.bytes(i)));
    return file.commit_unsynced();
}

Result<void> copy_files(const std::vector<CheckpointSource>& files, const fs::path& folder) {
    for (const CheckpointSource& file : files) {
        WISP_TRY(copy_tree(file.path, folder / file.name));
    }
    return {};
}

}  // namespace wisp
