// The words that a replica without weights asks for, as those who hold them answer.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "wisp/relay.hpp"

namespace wisp::testing {

class AskedWords {
  public:
    /// RelayReplicaOptions::room.
    std::span<std::byte> room(std::span<const TouchedTensor> wanted) {
        touched_.assign(wanted.begin(), wanted.end());
        std::size_t size = 0;
        for (const TouchedTensor& tensor : wanted) size += room_bytes_of(tensor.words);
        room_.assign(size, std::byte{});
        return room_;
    }
    /// Puts the words behind their indices.
    void fill_from(const std::vector<Bytes>& tensors) {
        std::byte* at = room_.data();
        for (const TouchedTensor& touched : touched_) {
            const Bytes& bytes = tensors[touched.tensor];
            for (std::size_t i = 0; i < touched.words; ++i) {
                const std::size_t first = std::size_t{load_le<std::uint32_t>(at + i * 4)} * 8;
                std::memcpy(at + index_bytes_of(touched.words) + i * 8, bytes.data() + first,
                            std::min<std::size_t>(8, bytes.size() - first));
            }
            at += room_bytes_of(touched.words);
        }
    }

  private:
    std::vector<TouchedTensor> touched_;
    Bytes room_;
};

}  // namespace wisp::testing
