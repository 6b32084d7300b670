#include <array>
#include <vector>

#include "base/try.hpp"
#include "codec/dense_decoder.hpp"
#include "codec/rans.hpp"
#include "codec/split_table.hpp"
#include "kernel/elements.hpp"

namespace wisp {
namespace {

std::unexpected<Error> corrupt(const char* what) {
    return fail(ErrorKind::kCorrupt, std::string("split block: ") + what);
}

/// The words behind the four states, taken by whichever state runs low.
class SharedWords {
  public:
    explicit SharedWords(std::span<const std::byte> words) : in_(words) {}
    void refill(std::uint64_t& state) { state = (state << 32) | in_.fixed<std::uint32_t>(); }
    bool ok() const { return in_.ok(); }
    bool at_end() const { return in_.at_end(); }

  private:
    ByteReader in_;
};

template <class T>
Result<void> join_bytes(ByteReader& stream, const SplitTable& table,
                        std::span<const std::byte> low_bytes, std::span<std::byte> block) {
    constexpr std::size_t kKept = sizeof(T) - 1;
    std::array<std::uint8_t, 1U << kSplitBits> byte_of_slot;
    for (std::size_t byte = 0; byte < 256; ++byte) {
        std::fill_n(byte_of_slot.begin() + table.start[byte], table.frequency[byte],
                    static_cast<std::uint8_t>(byte));
    }
    std::array<std::uint64_t, kSplitStates> states;
    for (std::uint64_t& state : states) {
        state = stream.fixed<std::uint64_t>();
        if (!stream.ok() || state < kRansLow || state >= kRansLow << 32) {
            return corrupt("a state is out of range");
        }
    }
    SharedWords words(stream.take(stream.remaining()));
    for (std::size_t i = 0; i < block.size() / sizeof(T); ++i) {
        std::uint64_t& state = states[i % kSplitStates];
        const auto slot = static_cast<std::uint32_t>(state & ((1U << kSplitBits) - 1));
        const std::uint8_t byte = byte_of_slot[slot];
        state = table.frequency[byte] * (state >> kSplitBits) + slot - table.start[byte];
        if (state < kRansLow) words.refill(state);
        T rotated = static_cast<T>(T{byte} << (sizeof(T) * 8 - 8));
        if constexpr (kKept > 0) std::memcpy(&rotated, low_bytes.data() + i * kKept, kKept);
        store_le<T>(block.data() + i * sizeof(T), rotate_sign_up(rotated));
    }
    const bool complete = std::ranges::all_of(states, [](auto state) { return state == kRansLow; });
    if (!words.ok() || !words.at_end() || !complete) {
        return corrupt("its stream does not end with its last element");
    }
    return {};
}

}  // namespace

Result<void> decode_split(ByteReader& in, std::size_t block_bytes, unsigned element_bytes,
                          Bytes& new_block) {
    WISP_ASSIGN(const SplitTable table, parse_split_table(in));
    const std::uint64_t stream_bytes = in.varint();
    ByteReader stream(in.take(stream_bytes));
    const auto low_bytes = in.take(block_bytes / element_bytes * (element_bytes - 1));
    if (!in.ok() || !in.at_end()) return corrupt("its length does not fit its elements");
    new_block.resize(block_bytes);
    return with_element_type(element_bytes, [&]<class T>(T) {
        return join_bytes<T>(stream, table, low_bytes, new_block);
    });
}

}  // namespace wisp
