#include "follow/snapshot_writer.hpp"

#include <system_error>

#include "base/clone_file.hpp"
#include "base/try.hpp"
#include "delta/patch.hpp"

namespace wisp {
namespace fs = std::filesystem;

Result<void> SnapshotWriter::take(const MovedBlock& block) {
    const TensorPlace& place = before_.place(block.tensor);
    const fs::path& from = before_.files()[place.file].path;
    const fs::path to = folder_ / from.filename();
    std::optional<FileHandle>& file = touched_[place.file];
    if (!file) {
        WISP_TRY(clone_file(from, to));
        WISP_ASSIGN(FileHandle opened, open_for_update(to));
        file.emplace(std::move(opened));
    }
    const BlockChanges& changes = block.changes;
    return patch_file(
        *file, to,
        {place.offset + block.first_element * changes.element_bytes, changes.element_bytes,
         std::as_bytes(std::span(changes.positions)), changes.new_bits},
        buffer_);
}

Result<void> SnapshotWriter::finish(const std::vector<std::string>& files) {
    touched_.clear();
    const fs::path from = before_.path();
    std::error_code error;
    for (const std::string& name : files) {
        if (fs::exists(folder_ / name, error)) continue;
        // Small files are worth a copy: people edit configurations in place.
        const bool weights = name.ends_with(".safetensors");
        WISP_TRY(weights ? share_file(from / name, folder_ / name)
                         : clone_file(from / name, folder_ / name));
    }
    return {};
}

}  // namespace wisp
