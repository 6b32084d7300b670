#include "follow/incoming_state.hpp"

#include <system_error>

#include "base/file.hpp"
#include "base/try.hpp"
#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/zeroed_files.hpp"
#include "delta/deliver_changes.hpp"
#include "delta/join_weights.hpp"

namespace wisp {
namespace fs = std::filesystem;

Result<fs::path> make_incoming(const Replica& replica) {
    const fs::path folder = replica.scratch() / "incoming";
    std::error_code error;
    fs::remove_all(folder, error);
    fs::create_directories(folder, error);
    if (error) return std::unexpected(file_error("create", folder, error.value()));
    return folder;
}

Result<IncomingState> IncomingState::make(const Replica& replica, unsigned threads) {
    WISP_ASSIGN(fs::path folder, make_incoming(replica));
    return IncomingState(std::move(folder), threads);
}

Result<void> IncomingState::copy(const fs::path& checkpoint) {
    WISP_ASSIGN(const Checkpoint from, Checkpoint::open(checkpoint));
    WISP_ASSIGN(const auto files, files_of(from));
    return copy_files(files, folder_);
}

Result<void> IncomingState::take(const fs::path& file, const std::string& name) {
    std::error_code error;
    fs::rename(file, folder_ / name, error);
    if (error) return std::unexpected(file_error("move", file, error.value()));
    return {};
}

Result<void> IncomingState::take_header(const fs::path& file, const std::string& name) {
    WISP_TRY(take(file, name));
    return make_zeroed(folder_ / name);
}

Result<const Checkpoint*> IncomingState::checkpoint() {
    if (!checkpoint_) {
        WISP_ASSIGN(checkpoint_, Checkpoint::open(folder_));
    }
    return &*checkpoint_;
}

Result<const Schema*> IncomingState::schema() {
    WISP_ASSIGN(const Checkpoint* const opened, checkpoint());
    return &opened->schema();
}

Result<StateDigest> IncomingState::fill(const fs::path& delta) {
    WISP_ASSIGN(const Checkpoint* const opened, checkpoint());
    return fill_zeroed(*opened, delta, held_.get(), threads_);
}

Result<StateDigest> IncomingState::digest() {
    WISP_ASSIGN(const Checkpoint* const opened, checkpoint());
    return digest_of(*opened, threads_);
}

Result<ApplyReport> IncomingState::apply(const StateDigest& known,
                                         const std::vector<fs::path>& deltas) {
    WISP_ASSIGN(const Checkpoint* const opened, checkpoint());
    if (held_ == nullptr) return patch_unguarded(*opened, known, deltas, threads_);
    return patch_slices(*opened, known, deltas, *held_, threads_);
}

}  // namespace wisp
