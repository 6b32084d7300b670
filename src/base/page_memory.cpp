#include "base/page_memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <utility>

namespace wisp {

Result<PageMemory> PageMemory::allocate(std::uint64_t byte_count) {
    PageMemory memory;
    if (byte_count == 0) return memory;
    void* const at = ::mmap(nullptr, byte_count, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return fail(ErrorKind::kUnavailable,
                    fmt::format("there are no {} bytes of memory for the weights; free some, or "
                                "follow into a folder",
                                byte_count));
    }
    // Refused by some kernels; small pages do as well.
    (void)::madvise(at, byte_count, MADV_HUGEPAGE);
    memory.bytes_ = {static_cast<std::byte*>(at), static_cast<std::size_t>(byte_count)};
    return memory;
}

PageMemory::PageMemory(PageMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

PageMemory& PageMemory::operator=(PageMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
}

PageMemory::~PageMemory() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace wisp
