#include "base/deflate.hpp"

#include <zlib.h>

namespace wisp {
namespace {

// A zlib stream grows by at most about 1030 from packed to plain; more than that is a lie that
// would only make us take memory.
constexpr std::uint64_t kLargestRatio = 1100;

}  // namespace

Result<Bytes> deflate_bytes(std::span<const std::byte> plain) {
    uLongf size = compressBound(static_cast<uLong>(plain.size()));
    Bytes packed(size);
    const int code = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                               reinterpret_cast<const Bytef*>(plain.data()),
                               static_cast<uLong>(plain.size()), Z_BEST_COMPRESSION);
    if (code != Z_OK) return fail(ErrorKind::kInternal, "zlib could not pack the directory");
    packed.resize(size);
    return packed;
}

Result<Bytes> inflate_bytes(std::span<const std::byte> packed, std::uint64_t plain_size) {
    if (plain_size / kLargestRatio > packed.size()) {
        return fail(ErrorKind::kCorrupt, "a packed stream claims an impossible size");
    }
    Bytes plain(static_cast<std::size_t>(plain_size));
    auto size = static_cast<uLongf>(plain_size);
    auto consumed = static_cast<uLong>(packed.size());
    // zlib refuses a null destination even for zero bytes.
    Bytef nothing = 0;
    Bytef* to = plain.empty() ? &nothing : reinterpret_cast<Bytef*>(plain.data());
    const int code =
        uncompress2(to, &size, reinterpret_cast<const Bytef*>(packed.data()), &consumed);
    if (code != Z_OK || size != plain_size || consumed != packed.size()) {
        return fail(ErrorKind::kCorrupt, "a packed stream does not unpack to the size it states");
    }
    return plain;
}

}  // namespace wisp
