// How the bytes of several writers make up one file: doc/protocol.md section 3.6.
//
//   woven  := record strand…              the parts of a woven file, side by side
//   record := "wisp weave 1" u8 flags, varint strands, varint bytes…, varint runs, run…
//   run    := varint strand, varint bytes
//
// A strand is what one writer put down, front to back. The runs, in the order of the file, say from
// which strand the next bytes come. Every byte of every strand is used once. Flag 1: the file is a
// sealed delta whose 64 digits of seal are still zeros; whoever puts it together fills them in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "wisp/result.hpp"

namespace wisp {

struct WeaveRun {
    std::uint64_t strand = 0;
    std::uint64_t bytes = 0;
    friend bool operator==(const WeaveRun&, const WeaveRun&) = default;
};

struct Weave {
    bool open_seal = false;
    std::vector<std::uint64_t> strand_bytes;
    std::vector<WeaveRun> runs;

    /// Puts `bytes` more of `strand` at the end of the file; nothing is no run.
    void add(std::uint64_t strand, std::uint64_t bytes);
    friend bool operator==(const Weave&, const Weave&) = default;
};

Bytes write_weave(const Weave& weave);

struct ParsedWeave {
    Weave weave;
    std::uint64_t record_bytes = 0;  // the strands begin behind them
    std::uint64_t file_bytes = 0;
};
/// `woven` is the whole. kCorrupt names the rule that is broken; kUnsupported for unknown flags.
Result<ParsedWeave> parse_weave(std::span<const std::byte> woven);

}  // namespace wisp
