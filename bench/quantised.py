"""What a step costs when weights are quantised before they are compared, beside bf16.

Replays the recorded run through `wisp.Publisher(…, quantize=…)`, one scheme after the other, and
counts what followers get. Sizes and counts are exact and the same on every machine:

    PYTHONPATH=build/release/python python bench/quantised.py [--trace DIR] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import torch

import wisp
from trace import Trace, add_trace_option, find_trace
from wisp import quantize as schemes

SCHEMES = {
    "bf16": None,
    "fp8 128x128, fp32 scales": schemes.BlockFp8(),
    "fp8 128x128, UE8M0 scales": schemes.BlockFp8(scales="ue8m0"),
    "fp8 per channel": schemes.ChannelFp8(),
    "int8 per channel": schemes.ChannelInt8(),
    "mxfp8": schemes.MxFp8(),
    "mxfp4": schemes.MxFp4(),
    "nvfp4": schemes.NvFp4(),
}


def as_tensor(bits) -> torch.Tensor:
    """Bit patterns of bf16 as the tensor they are, in memory of its own."""
    return torch.from_numpy(bits.view("int16").copy()).view(torch.bfloat16)


class Counter:
    """Counts the elements that each step changes, codes and scales apart."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []

    def __call__(self, changes: wisp.Changes) -> None:
        if changes.kind != "applied":
            return
        counts = {True: 0, False: 0}
        for change in changes:
            assert change.positions is not None
            counts["scale" in change.name] += len(change.positions)
        self.steps.append((counts[False], counts[True]))


def measure(trace: Trace, scheme: schemes.Scheme | None) -> dict[str, float]:
    """Publishes and follows the matrices of the trace; medians over its steps."""
    probe = schemes.ChannelInt8()
    model = {
        name: as_tensor(bits)
        for name, bits in trace.checkpoint(trace.anchor_step).items()
        if probe.takes(name, bits.shape, torch.bfloat16)
    }
    counter = Counter()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        options = {"quantize": scheme, "anchor_every": 1000, "on_error": "raise"}
        with wisp.Publisher(run, model, **options) as publisher:
            publisher.publish(trace.anchor_step)
            publisher.flush()
            with wisp.Follower(run, counter) as follower:
                follower.sync()
                for step, _, new in trace.replay():
                    for name, tensor in model.items():
                        tensor.copy_(as_tensor(new[name]))
                    publisher.publish(step)
                    publisher.flush()
                    follower.sync()
            stats = [s for s in publisher.stats if s.kind != "anchor"]
    elements = sum(tensor.numel() for tensor in model.values())
    # Two codes to a byte are counted as the byte that they share.
    codes = elements // 2 if isinstance(scheme, (schemes.MxFp4, schemes.NvFp4)) else elements
    changed = [code for code, _ in counter.steps]
    return {
        "steps": len(counter.steps),
        "elements": elements,
        "codes_changed": statistics.median(changed),
        "codes_changed_percent": 100 * statistics.median(changed) / codes,
        "codes_changed_percent_max": 100 * max(changed) / codes,
        "scales_changed": statistics.median(scale for _, scale in counter.steps),
        "scales_changed_max": max(scale for _, scale in counter.steps),
        "bytes": statistics.median(s.bytes for s in stats),
        "bits_per_change": statistics.median(
            8 * s.bytes / max(1, code + scale)
            for s, (code, scale) in zip(stats, counter.steps, strict=True)
        ),
        "full_bytes": stats[-1].full_bytes,
    }


def main() -> None:
    """Prints a table, and writes the figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    add_trace_option(parser)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    trace = Trace(find_trace(arguments.trace))
    found = {}
    print(
        "| scheme | codes changed | most in a step | scales changed | bytes a step | of bf16 "
        "| bits a change |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, scheme in SCHEMES.items():
        row = found[name] = measure(trace, scheme)
        share = row["bytes"] / found["bf16"]["bytes"]
        print(
            f"| {name} | {row['codes_changed_percent']:.3f} % | "
            f"{row['codes_changed_percent_max']:.3f} % | {row['scales_changed']:,.0f} | "
            f"{row['bytes']:,.0f} | {100 * share:.1f} % | {row['bits_per_change']:.1f} |",
            flush=True,
        )
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
