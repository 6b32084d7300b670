#include <algorithm>

#include "base/try.hpp"
#include "delta/journal.hpp"
#include "delta/patch.hpp"

namespace wisp {

Result<void> replay(const Journal& journal, const std::vector<CheckpointFile>& files,
                    JournalSide side) {
    std::vector<FileHandle> handles;
    for (const CheckpointFile& file : files) {
        WISP_ASSIGN(FileHandle handle, open_for_update(file.path));
        handles.push_back(std::move(handle));
    }
    Bytes buffer;
    WISP_TRY(journal.for_each([&](const Journal::Record& record) -> Result<void> {
        const auto bits = side == JournalSide::kNew ? record.new_bits : record.old_bits;
        return patch_file(handles[record.file], files[record.file].path,
                          {record.block_offset, record.width, record.positions, bits}, buffer);
    }));
    for (std::size_t i = 0; i < files.size(); ++i) {
        WISP_TRY(sync_file(handles[i], files[i].path));
    }
    return {};
}

}  // namespace wisp
