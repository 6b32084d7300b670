#include "demo_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace wisp::cli {
namespace {

namespace fs = std::filesystem;

class MappedWeights : public MutableWeights {
  public:
    static Result<std::shared_ptr<MutableWeights>> open(const fs::path& path) {
        auto checkpoint = Checkpoint::open(path);
        if (!checkpoint) return std::unexpected(checkpoint.error());
        const std::uint64_t size = checkpoint->files().front().size_bytes;
        const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
        void* const at = file < 0 ? MAP_FAILED
                                  : ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_POPULATE, file, 0);
        const int code = errno;
        if (file >= 0) ::close(file);
        if (at == MAP_FAILED) {
            return fail(ErrorKind::kUnavailable,
                        fmt::format("cannot map {}: {}; free some memory", printable(path.string()),
                                    std::strerror(code)));
        }
        return std::shared_ptr<MutableWeights>(
            new MappedWeights(std::move(*checkpoint), {static_cast<std::byte*>(at), size}));
    }
    MappedWeights(const MappedWeights&) = delete;
    MappedWeights& operator=(const MappedWeights&) = delete;
    ~MappedWeights() override { ::munmap(bytes_.data(), bytes_.size()); }

    const Schema& schema() const override { return checkpoint_.schema(); }
    std::span<const std::byte> bytes(std::size_t tensor) const override { return at(tensor); }
    std::span<std::byte> writable_bytes(std::size_t tensor) override { return at(tensor); }

  private:
    MappedWeights(Checkpoint checkpoint, std::span<std::byte> bytes)
        : checkpoint_(std::move(checkpoint)), bytes_(bytes) {}
    std::span<std::byte> at(std::size_t tensor) const {
        const TensorPlace& place = checkpoint_.place(tensor);
        return bytes_.subspan(place.offset, place.size_bytes);
    }
    Checkpoint checkpoint_;
    std::span<std::byte> bytes_;
};

}  // namespace

fs::path mapped_weights(const fs::path& folder) {
    return folder / "weights.safetensors";
}

Result<std::unique_ptr<Replica>> open_mapped_replica(
    const fs::path& folder, unsigned threads,
    std::function<Result<std::shared_ptr<void>>()> enter) {
    MemoryReplicaOptions options;
    options.threads = threads;
    options.scratch = folder / "scratch";
    options.enter = std::move(enter);
    options.target = [folder, scratch = options.scratch](
                         const Schema& schema) mutable -> Result<std::shared_ptr<MutableWeights>> {
        // What is being taken over, and will be removed: by another name it stays.
        const fs::path incoming = scratch / "incoming" / "model.safetensors";
        std::error_code error;
        fs::remove(mapped_weights(folder), error);
        fs::create_hard_link(incoming, mapped_weights(folder), error);
        if (error) {
            return fail(ErrorKind::kIncapable,
                        fmt::format("cannot link {}: {}; name another folder with --dir",
                                    printable(incoming.string()), error.message()));
        }
        auto mapped = MappedWeights::open(mapped_weights(folder));
        if (!mapped) return mapped;
        auto same = require_same_schema(schema, "what is taken over", (*mapped)->schema(),
                                        "what was mapped");
        if (!same) return std::unexpected(same.error());
        return mapped;
    };
    return open_memory_replica(options);
}

}  // namespace wisp::cli
