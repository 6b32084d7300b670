// A large stretch of memory of one's own, in huge pages where the system grants them: weights are
// read from end to end and written all over, and small pages cost more than the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wisp/result.hpp"

namespace wisp {

class PageMemory {
  public:
    /// Zeros. kUnavailable when there is not that much.
    static Result<PageMemory> allocate(std::uint64_t byte_count);
    PageMemory() = default;
    PageMemory(PageMemory&& other) noexcept;
    PageMemory& operator=(PageMemory&& other) noexcept;
    ~PageMemory();
    std::span<std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

}  // namespace wisp
