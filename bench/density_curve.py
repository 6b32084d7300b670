"""The cost of a step whatever share of it changed: blocked and committed time against a copy, and bytes.

Both codecs, from Python, published to a folder; medians of interleaved rounds. Writes a table, JSON and the
picture in doc/. Run with the module on PYTHONPATH:

    PYTHONPATH=build/release/python python bench/density_curve.py [--json FILE] [--svg FILE] [--from-json]
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import tempfile
import time
from pathlib import Path

SHARES = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0)
CODECS = ("swift", "compact")


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def take_step(tensor, percent: float, step: int) -> None:
    """Moves that share of the elements by one to seven bf16 steps, small ones the likelier."""
    import torch

    torch.manual_seed(step)
    bits = tensor.view(torch.int16)
    size = torch.empty(bits.numel()).geometric_(0.5).clamp_(max=7)
    size *= torch.randint(2, (bits.numel(),)).mul_(2).sub_(1)
    if percent < 100:
        size *= torch.rand(bits.numel()) < percent / 100
    bits += size.to(torch.int16)


def measure(percent: float, codec: str, elements: int, rounds: int, folder: Path) -> dict:
    import torch

    import wisp

    torch.manual_seed(0)
    tensors = {f"w{i}": torch.randn(elements // 8).mul_(0.02).to(torch.bfloat16) for i in range(8)}
    buffers = {name: tensor.clone() for name, tensor in tensors.items()}

    def copy() -> None:
        for name, tensor in tensors.items():
            buffers[name].copy_(tensor)

    rows = []
    run = folder / f"{codec}-{percent}"
    with wisp.Publisher(run, tensors, codec=codec, anchor_every=1000) as publisher:
        publisher.publish(0)
        for step in range(1, rounds + 2):
            for tensor in tensors.values():
                take_step(tensor, percent, step)
            publisher.flush()
            copied, blocked = seconds(copy), seconds(lambda: publisher.publish(step))
            rows.append((copied, blocked, blocked + seconds(publisher.flush)))
        sent = statistics.median(stats.bytes for stats in publisher.stats[-rounds:])
    shutil.rmtree(run)
    rows = rows[1:]  # the first makes its buffers
    return {
        "changed_percent": percent,
        "codec": codec,
        "copy_s": round(statistics.median(row[0] for row in rows), 4),
        "blocked_to_copy": round(statistics.median(row[1] / row[0] for row in rows), 2),
        "committed_to_copy": round(statistics.median(row[2] / row[0] for row in rows), 2),
        "bytes_of_full": round(sent / (2 * elements), 5),
    }


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


def panel(rows: list[dict], key: str, title: str, left: float, highest: float) -> list[str]:
    """One chart: the shares side by side, a line for each codec."""
    width, height, top = 300.0, 220.0, 40.0
    xs = [left + width * i / (len(SHARES) - 1) for i in range(len(SHARES))]
    out = [f'<text x="{left}" y="24" font-weight="bold">{title}</text>']
    for part in range(5):
        value = highest * part / 4
        y = top + height * (1 - part / 4)
        out.append(f'<path d="M{left} {y}h{width}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{value:g}</text>')
    for x, share in zip(xs, SHARES, strict=True):
        y = top + height + 16
        out.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{share:g}</text>')
    for codec, color in zip(CODECS, ("#1f77b4", "#d95f02"), strict=True):
        values = [r[key] for r in rows if r["codec"] == codec]
        points = " ".join(
            f"{x:.1f},{top + height * (1 - min(value / highest, 1)):.1f}"
            for x, value in zip(xs, values, strict=True)
        )
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
    return out


def svg(rows: list[dict]) -> str:
    """Three charts beside each other."""

    def above(key: str) -> float:
        return float(2.0 ** math.ceil(math.log2(max(row[key] for row in rows))))

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="1120" height="310" font-family="sans-serif" '
        'font-size="11">',
        '<rect width="1120" height="310" fill="white"/>',
    ]
    charts = (
        ("blocked_to_copy", "training stands still, times a copy"),
        ("committed_to_copy", "committed, times a copy"),
        ("bytes_of_full", "bytes, of the whole weights"),
    )
    for i, (key, title) in enumerate(charts):
        parts += panel(rows, key, title, 50 + 365 * i, above(key))
    parts.append('<text x="50" y="300">per cent of the weights that changed</text>')
    parts.append('<text x="900" y="300" fill="#1f77b4">swift</text>')
    parts.append('<text x="950" y="300" fill="#d95f02">compact</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=60_000_000)
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
            rows = [
                measure(share, codec, arguments.elements, arguments.rounds, folder)
                for share in SHARES
                for codec in CODECS
            ]
        finally:
            shutil.rmtree(folder)
        result = {"kernel": wisp.kernel_name(), "elements": arguments.elements, "rows": rows}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    arguments.svg.write_text(svg(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
