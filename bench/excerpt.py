"""Cuts a small trace out of a full one: `python excerpt.py [--trace DIR] [--out bench/data]`.

A part of one layer and the first rows of the embedding are enough to keep every size repeatable
from a clone. Tensors are kept whole or cut to their first rows, so flat positions stay what they
were, and the excerpt is again a valid trace.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tensor_file import Tensor, write_tensors
from trace import EXCERPT, Trace, add_trace_option, find_trace, sparse_metadata

LAYER = "model.layers.14."
ROWS: dict[str, int | None] = {
    "model.embed_tokens.weight": 512,
    LAYER + "self_attn.q_proj.weight": None,
    LAYER + "self_attn.k_proj.weight": None,
    LAYER + "self_attn.v_proj.weight": None,
    LAYER + "self_attn.o_proj.weight": None,
    LAYER + "mlp.gate_proj.weight": None,
    LAYER + "input_layernorm.weight": None,
    LAYER + "post_attention_layernorm.weight": None,
}
LIMIT_BYTES = 8_000_000


def write_excerpt(trace: Trace, out: Path) -> int:
    """Writes anchor and deltas under `out`; returns their bytes."""
    full = trace.checkpoint(trace.anchor_step)
    anchor = {name: full[name][: ROWS[name]] for name in trace.names if name in ROWS}
    total = sum(bits.size for bits in anchor.values())

    def write(folder: str, step: int, tensors: dict[str, Tensor], metadata: dict[str, str]) -> int:
        path = out / folder / f"step_{step:06d}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.write_bytes(write_tensors(tensors, metadata))

    written = write(
        "anchors",
        trace.anchor_step,
        {name: Tensor("BF16", bits) for name, bits in anchor.items()},
        sparse_metadata(trace.anchor_step, False, list(anchor), total, total),
    )
    for step in trace.steps:
        tensors: dict[str, Tensor] = {}
        changed: dict[str, int] = {}
        for name, (positions, values) in trace.read_changes(step).items():
            kept = int(np.searchsorted(positions, anchor[name].size)) if name in anchor else 0
            if kept:
                tensors[f"{name}.indices"] = Tensor("I32", positions[:kept])
                tensors[f"{name}.values"] = Tensor("BF16", values[:kept])
                changed[name] = kept
        metadata = sparse_metadata(step, True, list(changed), sum(changed.values()), total)
        written += write("deltas", step, tensors, metadata)
    return written


def main() -> None:
    """Makes the excerpt and replays it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    add_trace_option(parser)
    parser.add_argument("--out", type=Path, default=EXCERPT)
    options = parser.parse_args()
    trace = Trace(find_trace(options.trace))
    if trace.folder.resolve() == options.out.resolve():
        raise SystemExit("an excerpt is cut from a full trace: give it with --trace")
    written = write_excerpt(trace, options.out)
    if written > LIMIT_BYTES:
        raise SystemExit(f"the excerpt takes {written} bytes, more than {LIMIT_BYTES}")
    excerpt = Trace(options.out)
    for step, _, new in excerpt.replay():
        whole = trace.checkpoint(step)
        if not all(np.array_equal(bits, whole[n][: ROWS[n]]) for n, bits in new.items()):
            raise SystemExit(f"step {step} of the excerpt is not a part of the full trace")
    print(f"{options.out}: {excerpt.element_count} elements, {written} bytes")


if __name__ == "__main__":
    main()
