#include "codec/rans_reader.hpp"

namespace wisp {
namespace {

// Outside this range no writer ever leaves a state, and the arithmetic would overflow.
bool in_range(std::uint64_t state) {
    return state >= kRansLow && state < kRansLow << 32;
}

}  // namespace

RansReader::RansReader(std::span<const std::byte> stream) {
    if (stream.size() < 16 || stream.size() % 4 != 0) {
        ok_ = false;
        return;
    }
    position_ = load_le<std::uint64_t>(stream.data());
    value_ = load_le<std::uint64_t>(stream.data() + 8);
    next_ = stream.data() + 16;
    end_ = stream.data() + stream.size();
    if (!in_range(position_) || !in_range(value_)) {
        ok_ = false;
        position_ = value_ = kRansLow;
    }
}

}  // namespace wisp
