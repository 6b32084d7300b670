// The only way to read foreign bytes: a cursor that cannot leave its span.
//
// Integers are little-endian; variable-length ones are LEB128, at most ten bytes, shortest form
// only. A reader that has failed stays failed and yields zeros, so a parser may read a whole
// record and ask ok() once, before it uses anything.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace wisp {

static_assert(std::endian::native == std::endian::little, "wisp runs on little-endian machines");

template <class T>
T load_le(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
}

template <class T>
void store_le(std::byte* to, T value) {
    std::memcpy(to, &value, sizeof(T));
}

class ByteReader {
  public:
    explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

    bool ok() const { return ok_; }
    bool at_end() const { return rest_.empty(); }
    std::size_t remaining() const { return rest_.size(); }

    std::span<const std::byte> take(std::uint64_t count) {
        if (!ok_ || count > rest_.size()) {
            ok_ = false;
            return {};
        }
        const auto taken = rest_.first(static_cast<std::size_t>(count));
        rest_ = rest_.subspan(static_cast<std::size_t>(count));
        return taken;
    }

    template <class T>
    T fixed() {
        const auto bytes = take(sizeof(T));
        return bytes.size() == sizeof(T) ? load_le<T>(bytes.data()) : T{};
    }

    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 70; shift += 7) {
            const auto byte = fixed<std::uint8_t>();
            if (!ok_) return 0;
            const bool overflows = shift == 63 && byte > 1;
            const bool padded = shift > 0 && byte == 0;
            if (overflows || padded) break;
            value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
            if (byte < 0x80) return value;
        }
        ok_ = false;
        return 0;
    }

    std::string_view text(std::uint64_t count) {
        const auto bytes = take(count);
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

  private:
    std::span<const std::byte> rest_;
    bool ok_ = true;
};

using Bytes = std::vector<std::byte>;

template <class T>
void append_fixed(Bytes& out, T value) {
    const std::size_t at = out.size();
    out.resize(at + sizeof(T));
    store_le(out.data() + at, value);
}

inline void append_varint(Bytes& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::byte>(value | 0x80));
    out.push_back(static_cast<std::byte>(value));
}

inline void append_text(Bytes& out, std::string_view text) {
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    out.insert(out.end(), data, data + text.size());
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

inline std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace wisp
