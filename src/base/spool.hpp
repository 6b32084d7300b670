// Bytes whose place in the final file is not known yet: the first few are kept in memory, and once
// there are more, all of them in an unnamed file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "wisp/result.hpp"

namespace wisp {

class Spool {
  public:
    /// Up to `memory_bytes` stay in memory.
    static Result<Spool> create(const std::filesystem::path& folder,
                                std::size_t memory_bytes = std::size_t{1} << 20);

    Result<void> append(std::span<const std::byte> bytes);
    std::uint64_t size_bytes() const { return size_bytes_; }
    /// Hands out everything appended so far, in order, in pieces of a multiple of eight bytes.
    Result<void> drain(const std::function<Result<void>(std::span<const std::byte>)>& take);
    void clear();

  private:
    Spool(std::filesystem::path folder, std::size_t memory_bytes)
        : folder_(std::move(folder)), memory_bytes_(memory_bytes) {}
    Result<void> flush();
    std::filesystem::path folder_;
    std::size_t memory_bytes_;
    FileHandle file_;  // opened when the buffer first overflows: most spools never need it
    Bytes buffer_;
    std::uint64_t flushed_bytes_ = 0;
    std::uint64_t size_bytes_ = 0;
};

}  // namespace wisp
