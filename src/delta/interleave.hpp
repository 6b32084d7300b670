// How the bytes of several writers make up one file: doc/protocol.md section 3.6.
//
//   file   := record segment…              the parts of an interleaved file, side by side
//   record := "wisp interleave 1" u8 flags, varint segments, varint bytes…, varint extents, extent…
//   extent := varint segment, varint bytes
//
// A segment is what one writer put down, front to back. The extents, in the order of the file, say
// from which segment the next bytes come. Every byte of every segment is used once. Flag 1: the
// file is a sealed delta whose 64 digits of seal are still zeros; the rank that puts it together
// fills them in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct Extent {
    std::uint64_t segment = 0;
    std::uint64_t bytes = 0;
    friend bool operator==(const Extent&, const Extent&) = default;
};

struct InterleaveTable {
    bool open_seal = false;
    std::vector<std::uint64_t> segment_bytes;
    std::vector<Extent> extents;

    /// Puts `bytes` more of `segment` at the end of the file; nothing is no extent.
    void add(std::uint64_t segment, std::uint64_t bytes);
    friend bool operator==(const InterleaveTable&, const InterleaveTable&) = default;
};

Bytes write_interleave_table(const InterleaveTable& table);

struct ParsedInterleave {
    InterleaveTable table;
    std::uint64_t record_bytes = 0;  // the segments begin behind them
    std::uint64_t file_bytes = 0;
};
/// `interleaved` is the whole. kCorrupt names the rule that is broken; kUnsupported for unknown
/// flags.
Result<ParsedInterleave> parse_interleaved(std::span<const std::byte> interleaved);

}  // namespace wisp
