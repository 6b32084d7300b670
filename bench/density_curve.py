"""The cost of a step whatever share of it changed: blocked and committed against a copy, and bytes.

Both codecs, from Python, published to a folder; medians of interleaved rounds. Times are the processor's, over
all threads, so that what others run on the machine meanwhile does not count; `--clock wall` takes the clock's.
Writes a table, JSON and the picture in doc/. Run with the module on PYTHONPATH:

    PYTHONPATH=build/release/python python bench/density_curve.py [--json FILE] [--svg FILE] [--from-json]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait take no time

SHARES = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0)
CODECS = ("swift", "compact")
COLORS = ("#1f77b4", "#d95f02")
CLOCKS = {"processor": time.process_time, "wall": time.perf_counter}
TENSORS = 8


def moved(tensor, percent: float, seed: int):
    """That share of the elements moved by one to seven bf16 steps, small ones the likelier."""
    import torch

    torch.manual_seed(seed)
    bits = tensor.view(torch.int16)
    size = torch.empty(bits.numel()).geometric_(0.5).clamp_(max=7)
    size *= torch.randint(2, (bits.numel(),)).mul_(2).sub_(1)
    if percent < 100:
        size *= torch.rand(bits.numel()) < percent / 100
    return (bits + size.to(torch.int16)).view(torch.bfloat16)


class CodecRun:
    """A trainer that publishes with one codec, and what its steps have cost so far."""

    def __init__(self, codec: str, tensors: dict, folder: Path, clock: Callable[[], float]) -> None:
        import wisp

        self.codec = codec
        self._clock = clock
        self._run = folder / codec
        self._publisher = wisp.Publisher(self._run, tensors, codec=codec, anchor_every=1000)
        self._publisher.publish(0)
        self._publisher.flush()
        self._rows: list[tuple[float, float, float]] = []

    def step(self, number: int, copy: Callable[[], None]) -> None:
        start = self._clock()
        copy()
        copied = self._clock()
        self._publisher.publish(number)
        blocked = self._clock()
        self._publisher.flush()
        committed = self._clock()
        self._rows.append((copied - start, blocked - copied, committed - copied))

    def figures(self, percent: float, whole_bytes: int) -> dict:
        rows = self._rows[1:]  # the first makes its buffers
        sent = statistics.median(stats.bytes for stats in self._publisher.stats[-len(rows) :])
        self._publisher.close()
        shutil.rmtree(self._run)
        return {
            "changed_percent": percent,
            "codec": self.codec,
            "copy_s": round(statistics.median(row[0] for row in rows), 4),
            "blocked_to_copy": round(statistics.median(row[1] / row[0] for row in rows), 2),
            "committed_to_copy": round(statistics.median(row[2] / row[0] for row in rows), 2),
            "bytes_of_full": round(sent / whole_bytes, 5),
        }


def measure(
    percent: float, elements: int, rounds: int, folder: Path, clock: Callable[[], float]
) -> list[dict]:
    """Steps to and fro between two states, of both codecs in turn."""
    import torch

    torch.manual_seed(0)
    each = elements // TENSORS
    states = [{f"w{i}": torch.randn(each).mul_(0.02).to(torch.bfloat16) for i in range(TENSORS)}]
    states.append({n: moved(t, percent, i) for i, (n, t) in enumerate(states[0].items())})
    tensors = {name: tensor.clone() for name, tensor in states[0].items()}
    buffers = {name: tensor.clone() for name, tensor in tensors.items()}

    def copy() -> None:
        for name, tensor in tensors.items():
            buffers[name].copy_(tensor)

    runs = [CodecRun(codec, tensors, folder, clock) for codec in CODECS]
    for step in range(1, rounds + 2):
        for name, tensor in tensors.items():
            tensor.copy_(states[step % 2][name])
        for run in runs:
            run.step(step, copy)
    return [run.figures(percent, 2 * each * TENSORS) for run in runs]


def table(rows: list[dict]) -> str:
    lines = ["| changed | swift: blocked, committed, bytes | compact: blocked, committed, bytes |"]
    lines.append("|---|---|---|")
    for share in SHARES:
        cells = [f"{share:g} %"]
        for codec in CODECS:
            row = next(r for r in rows if r["codec"] == codec and r["changed_percent"] == share)
            cells.append(
                f"{row['blocked_to_copy']:.1f}x, {row['committed_to_copy']:.1f}x, "
                f"{row['bytes_of_full']:.4f}"
            )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def panel(
    rows: list[dict], key: str, title: str, left: float, ticks: list[float], limit: float | None
) -> list[str]:
    """One chart: the shares side by side, a line for each codec, each tick as far from the next."""
    width, height, top = 320.0, 240.0, 44.0
    low, high = math.log(ticks[0]), math.log(ticks[-1])

    def level(value: float) -> float:
        at = (math.log(max(value, ticks[0])) - low) / (high - low)
        return top + height * (1 - min(at, 1.0))

    xs = [left + width * i / (len(SHARES) - 1) for i in range(len(SHARES))]
    out = [f'<text x="{left}" y="22" font-size="14" font-weight="bold">{title}</text>']
    for tick in ticks:
        y = level(tick)
        out.append(f'<path d="M{left} {y:.1f}h{width}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    if limit is not None:
        y = level(limit)
        out.append(f'<path d="M{left} {y:.1f}h{width}" stroke="#444" stroke-dasharray="5 4"/>')
    for x, share in zip(xs, SHARES, strict=True):
        y = top + height + 18
        out.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{share:g}</text>')
    for codec, color in zip(CODECS, COLORS, strict=True):
        values = [r[key] for r in rows if r["codec"] == codec]
        places = [(x, level(value)) for x, value in zip(xs, values, strict=True)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
    return out


def svg(rows: list[dict]) -> str:
    """Three charts beside each other."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="340" font-family="sans-serif" '
        'font-size="12">',
        '<rect width="1200" height="340" fill="white"/>',
    ]
    highest = max(row["committed_to_copy"] for row in rows)
    doubled = [2.0**power for power in range(math.ceil(math.log2(highest)) + 1)]
    tenfold = [0.0001, 0.001, 0.01, 0.1, 1.0]
    charts = (
        ("blocked_to_copy", "training stands still, times a copy", doubled, 2.0),
        ("committed_to_copy", "committed, times a copy", doubled, None),
        ("bytes_of_full", "bytes, of the whole weights", tenfold, None),
    )
    for i, (key, title, ticks, limit) in enumerate(charts):
        parts += panel(rows, key, title, 56 + 392 * i, ticks, limit)
    parts.append('<text x="56" y="328">per cent of the weights that changed</text>')
    for i, (codec, color) in enumerate(zip(CODECS, COLORS, strict=True)):
        parts.append(f'<circle cx="{960 + 90 * i}" cy="324" r="4" fill="{color}"/>')
        parts.append(f'<text x="{970 + 90 * i}" y="328">{codec}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=60_000_000)
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="processor")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("bench/results/density_curve.json"))
    parser.add_argument("--svg", type=Path, default=Path("doc/density.svg"))
    parser.add_argument("--from-json", action="store_true", help="draw what was measured before")
    arguments = parser.parse_args()
    if arguments.from_json:
        rows = json.loads(arguments.json.read_text())["rows"]
    else:
        import wisp

        folder = Path(tempfile.mkdtemp(prefix="wisp-bench-"))
        try:
            rows = []
            for share in SHARES:
                sizes = (arguments.elements, arguments.rounds)
                rows += measure(share, *sizes, folder, CLOCKS[arguments.clock])
        finally:
            shutil.rmtree(folder)
        result = {
            "kernel": wisp.kernel_name(), "elements": arguments.elements, "clock": arguments.clock,
            "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "rows": rows,
        }  # fmt: skip
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    arguments.svg.write_text(svg(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
