"""The size of every peer's delta format on the same pairs of checkpoints.

`python bench/peers.py [--trace DIR] [--pairs 14:15,14:22] [--wisp build/wisp] [--json out.json]
[--sparser build/release/bin/wisp_make_pair]`

A figure is the whole payload (every file a sender uploads, headers and checksums included) in
bits, divided by the number of changed elements. A peer's payload is decoded again before it
counts; wisp's own tests do that for wisp.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import arc3
from bounds import BOUNDS
from formats import FORMATS, Format, Pair, payload_bytes
from tensor_file import parse_tensors
from trace import Trace, add_trace_option, find_trace

WISP_CODECS = ("compact", "swift", "gap", "plain")
MERGED_STEPS = 8
BF16_BITS = 16
#: Of one simulated AdamW step that changes 0.18 % of the weights: bench/simulated_training.hpp.
SPARSER_LAYERS, SPARSER_RATE = 4, 2.5e-7


@dataclass
class Row:
    """One line of the table: a format and its bits by pair. A bound has no bytes of its own."""

    name: str
    note: str
    is_bound: bool = False
    bits: dict[tuple[int, int], float] = field(default_factory=dict)


@dataclass(frozen=True)
class Span:
    """What the table needs of a pair once its checkpoints, some 60 MB, are let go."""

    old_step: int
    new_step: int
    changed_count: int
    element_count: int


Spans = dict[tuple[int, int], Span]


def parse_pairs(text: str | None, trace: Trace) -> list[tuple[int, int]]:
    """`14:15,14:22`; left out, every single step and the first eight merged."""
    if text:
        pairs = [tuple(map(int, pair.split(":"))) for pair in text.split(",")]
        return [(old, new) for old, new in pairs]
    singles = [(step - 1, step) for step in trace.steps]
    merged = (trace.anchor_step, trace.anchor_step + MERGED_STEPS)
    return singles + ([merged] if merged[1] in trace.steps else [])


def measure_format(fmt: Format, pair: Pair) -> int:
    """Bits of the payload, once its decoder has given back every bit of the new checkpoint."""
    payload = fmt.encode(pair)
    restored = fmt.decode(payload, pair.old)
    if not all(np.array_equal(restored[name], bits) for name, bits in pair.new.items()):
        raise RuntimeError(f"{fmt.name} {pair.old_step}:{pair.new_step} does not round-trip")
    return 8 * payload_bytes(payload)


def diff_bits(wisp: Path, codec: str, old: Path, new: Path, folder: Path) -> int:
    """Bits of what `wisp diff` writes into an empty folder; a folder counts whole."""
    command = [str(wisp.resolve()), "diff", str(old), str(new), "-o", str(folder / "delta")]
    done = subprocess.run([*command, "--codec", codec], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"wisp diff --codec {codec}: {done.stderr.strip()}")
    # A delta may be split into files, so everything the tool left behind is counted.
    written = [path for path in folder.rglob("*") if path.is_file()]
    if not written:
        raise RuntimeError(f"wisp diff --codec {codec} wrote nothing")
    return 8 * sum(path.stat().st_size for path in written)


def measure_wisp(wisp: Path, codec: str, trace: Trace, pair: Pair) -> int:
    """Bits of the delta between two checkpoints of the trace."""
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old.safetensors"
        new = Path(folder) / "new.safetensors"
        out = Path(folder) / "out"
        out.mkdir()
        trace.write_checkpoint(pair.old_step, old)
        trace.write_checkpoint(pair.new_step, new)
        return diff_bits(wisp, codec, old, new, out)


def measure_sparser(wisp: Path, make_pair: Path) -> dict:
    """wisp's codecs where fewer weights change than in the trace, in the shape of Qwen3-0.6B."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [folder, str(SPARSER_LAYERS), str(SPARSER_RATE)]
        subprocess.run([str(make_pair.resolve()), *arguments], check=True)
        old, new = (Path(folder) / f"{name}.safetensors" for name in ("old", "new"))
        before, after = (parse_tensors(path.read_bytes())[0] for path in (old, new))
        changed = sum(
            int(np.count_nonzero(before[name].bits != after[name].bits)) for name in before
        )
        elements = sum(tensor.bits.size for tensor in before.values())
        del before, after
        bits = {}
        for codec in WISP_CODECS:
            out = Path(folder) / codec
            out.mkdir()
            bits[codec] = diff_bits(wisp, codec, old, new, out)
    return {
        "how": f"one simulated AdamW step, wisp_make_pair FOLDER {SPARSER_LAYERS} {SPARSER_RATE}",
        "elements": elements,
        "changed": changed,
        "changed_share": round(changed / elements, 6),
        "bits_per_changed": {codec: round(size / changed, 4) for codec, size in bits.items()},
    }


def measure(
    trace: Trace, pairs: list[tuple[int, int]], wisp: Path | None
) -> tuple[list[Row], Spans]:
    """Every row over every pair, and what they are measured against."""
    formats = FORMATS + ([arc3.load_format()] if arc3.is_installed() else [])
    rows = {fmt.name: Row(fmt.name, fmt.note) for fmt in formats}
    rows |= {name: Row(name, note, is_bound=True) for name, (note, _) in BOUNDS.items()}
    if wisp:
        rows |= {f"wisp {codec}": Row(f"wisp {codec}", f"`{wisp.name} diff --codec {codec}`")
                 for codec in WISP_CODECS}
    spans: Spans = {}
    for key in pairs:
        pair = Pair(*key, trace.checkpoint(key[0]), trace.checkpoint(key[1]))
        if not pair.changed_count:
            raise SystemExit(f"pair {key[0]}:{key[1]} has no change to divide by")
        spans[key] = Span(*key, pair.changed_count, pair.element_count)
        for fmt in formats:
            rows[fmt.name].bits[key] = measure_format(fmt, pair)
        for name, (_, bound) in BOUNDS.items():
            rows[name].bits[key] = bound(pair)
        if wisp:
            for codec in WISP_CODECS:
                rows[f"wisp {codec}"].bits[key] = measure_wisp(wisp, codec, trace, pair)
    if not arc3.is_installed():
        rows["Fireworks ARC3"] = Row("Fireworks ARC3", "not installed: see requirements-arc3.txt")
    return list(rows.values()), spans


def summarise(row: Row, spans: Spans, keys: list[tuple[int, int]]) -> tuple[float, float]:
    """Mean bits per changed element over `keys`, and how many times smaller than full bf16."""
    mean = float(np.mean([row.bits[key] / spans[key].changed_count for key in keys]))
    full = sum(BF16_BITS * spans[key].element_count for key in keys)
    return mean, full / sum(row.bits[key] for key in keys)


def print_table(rows: list[Row], spans: Spans) -> None:
    """Smallest last; single steps as a mean, longer spans one column each."""
    groups = {f"{old}→{new}": [(old, new)] for old, new in spans if new - old != 1}
    singles = [key for key in spans if key[1] - key[0] == 1]
    if singles:
        old, new = singles[0]
        name = f"{len(singles)} single steps" if len(singles) > 1 else f"{old}→{new}"
        groups = {name: singles} | groups
    first = next(iter(groups.values()))
    heads = [part for name in groups for part in (name, "ratio")]
    lines = [["format, bits per changed element", *heads, "how"]]
    measured = [row for row in rows if row.bits]
    for row in sorted(measured, key=lambda row: -summarise(row, spans, first)[0]):
        cells = [summarise(row, spans, keys) for keys in groups.values()]
        figures = [text for mean, ratio in cells for text in (f"{mean:.2f}", f"{ratio:.0f}x")]
        lines.append([row.name, *figures, row.note])
    for row in rows:
        if not row.bits:
            lines.append([row.name, *["-"] * len(heads), row.note])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        middle = (cell.rjust(width) for cell, width in zip(line[1:-1], widths[1:-1], strict=True))
        print("  ".join([line[0].ljust(widths[0]), *middle, line[-1]]))


def to_json(rows: list[Row], spans: Spans, trace: Trace) -> dict:
    """Everything that was measured, pair by pair; bits of a bound are rounded to whole ones."""
    return {
        "tensors": len(trace.names),
        "elements": trace.element_count,
        "pairs": [
            {"old": span.old_step, "new": span.new_step, "changed": span.changed_count}
            for span in spans.values()
        ],
        "formats": [
            {
                "name": row.name,
                "how": row.note,
                "is_bound": row.is_bound,
                "payload_bits": [round(row.bits[key]) for key in spans] if row.bits else None,
                "bits_per_changed": [
                    round(row.bits[key] / spans[key].changed_count, 4) for key in spans
                ] if row.bits else None,
            }
            for row in rows
        ],
    }


def main() -> None:
    """Measures, prints the table, and writes JSON when asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_trace_option(parser)
    parser.add_argument("--pairs", help="OLD:NEW,...; default every single step and 8 merged")
    parser.add_argument("--wisp", type=Path, help="the wisp command line tool")
    parser.add_argument("--sparser", type=Path, help="wisp_make_pair, for a sparser pair as well")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    trace = Trace(find_trace(options.trace))
    rows, spans = measure(trace, parse_pairs(options.pairs, trace), options.wisp)
    shares = [span.changed_count / span.element_count for span in spans.values()]
    print(f"{trace.folder}: {len(trace.names)} tensors, {trace.element_count} elements, "
          f"{min(shares):.2%} to {max(shares):.2%} changed; ratio is against full bf16\n")
    print_table(rows, spans)
    found = to_json(rows, spans, trace)
    if options.wisp and options.sparser:
        found["sparser"] = measure_sparser(options.wisp, options.sparser)
        print(f"\n{json.dumps(found['sparser'], indent=1)}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
