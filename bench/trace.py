"""A recorded run (one anchor, then consecutive sparse deltas), replayed bit by bit.

Layout and files are those of TRL #5417: `anchors/step_%06d.safetensors` and
`deltas/step_%06d.safetensors` with `{name}.indices` (int32, ascending) and `{name}.values` (bf16).
Weights are uint16 bit patterns throughout: comparing floats would lose -0 and NaN.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tensor_file import Tensor, read_tensors, write_tensors

Checkpoint = dict[str, np.ndarray]
Changes = dict[str, tuple[np.ndarray, np.ndarray]]

BENCH = Path(__file__).resolve().parent
SHARED_TRACE = BENCH.parent.parent / "shared" / "trace"
EXCERPT = BENCH / "data"


def add_trace_option(parser: argparse.ArgumentParser) -> None:
    """The one spelling of `--trace` for every bench."""
    parser.add_argument("--trace", type=Path, help="folder with anchors/ and deltas/")


def find_trace(given: Path | None = None) -> Path:
    """The given folder, else the full trace beside the repository, else the excerpt inside it."""
    for folder in [given] if given else [SHARED_TRACE, EXCERPT]:
        if (folder / "anchors").is_dir() and (folder / "deltas").is_dir():
            return folder
    raise SystemExit(f"no trace in {given or EXCERPT}: expected anchors/ and deltas/ there")


def sparse_metadata(
    step: int, sparse: bool, changed: list[str], changed_elements: int, total_elements: int
) -> dict[str, str]:
    """The metadata keys of TRL #5417; every value is a string."""
    return {
        "format": "sparse_weight_patch",
        "version": "1",
        "sparse": str(sparse),
        "model_version": str(step),
        "num_changed_params": str(len(changed)),
        "total_changed_elements": str(changed_elements),
        "total_elements": str(total_elements),
        "sparsity": str(1.0 - changed_elements / total_elements),
        "changed_params": json.dumps(changed),
    }


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step_"))


class Trace:
    """One anchor and the deltas that follow it without a gap."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        anchors = sorted((folder / "anchors").glob("step_*.safetensors"))
        if len(anchors) != 1:
            raise ValueError(f"{folder}: expected one anchor, found {len(anchors)}")
        self.anchor_step = _step_of(anchors[0])
        tensors, metadata = read_tensors(anchors[0])
        # The metadata lists tensors in the order of the model, the header does not.
        self.names: list[str] = json.loads(metadata["changed_params"])
        if set(self.names) != set(tensors):
            raise ValueError(f"{anchors[0]}: metadata and tensors disagree")
        self._anchor: Checkpoint = {name: tensors[name].bits for name in self.names}
        self._deltas = {_step_of(p): p for p in sorted((folder / "deltas").glob("step_*"))}
        self.steps = list(self._deltas)
        first = self.anchor_step + 1
        if self.steps != list(range(first, first + len(self.steps))):
            raise ValueError(f"{folder}: deltas do not follow anchor {self.anchor_step}")

    @property
    def element_count(self) -> int:
        """Elements in all tensors together."""
        return sum(bits.size for bits in self._anchor.values())

    def delta_bytes(self, step: int) -> int:
        """Size of the recorded file that leads to `step`."""
        return self._deltas[step].stat().st_size

    def read_changes(self, step: int) -> Changes:
        """Flat positions and new bits by tensor, checked: ascending, inside, as many as values."""
        tensors, metadata = read_tensors(self._deltas[step])
        changes: Changes = {}
        for name in json.loads(metadata["changed_params"]):
            positions = tensors[f"{name}.indices"].bits
            values = tensors[f"{name}.values"].bits
            ascending = bool(np.all(positions[1:] > positions[:-1]))
            inside = positions.size > 0 and 0 <= positions[0] <= positions[-1]
            inside = inside and positions[-1] < self._anchor[name].size
            if not ascending or not inside or positions.size != values.size:
                raise ValueError(f"step {step}, {name}: indices are not a change set")
            changes[name] = (positions, values)
        if 2 * len(changes) != len(tensors):
            raise ValueError(f"step {step}: tensors that changed_params does not name")
        return changes

    def replay(self) -> Iterator[tuple[int, Checkpoint, Checkpoint]]:
        """Yields (step, old, new); tensors a step leaves alone are the same array in both."""
        old = self._anchor
        for step in self.steps:
            new = dict(old)
            for name, (positions, values) in self.read_changes(step).items():
                bits = old[name].copy()
                if np.any(bits.reshape(-1)[positions] == values):
                    raise ValueError(f"step {step}, {name}: lists an element that did not change")
                bits.reshape(-1)[positions] = values
                new[name] = bits
            yield step, old, new
            old = new

    def checkpoint(self, step: int) -> Checkpoint:
        """All tensors as they stand at `step`."""
        if step == self.anchor_step:
            return dict(self._anchor)
        for reached, _, new in self.replay():
            if reached == step:
                return new
        raise ValueError(f"step {step} is not in {self.folder}")

    def write_checkpoint(self, step: int, path: Path) -> None:
        """Writes the checkpoint of `step` as one plain bf16 safetensors file."""
        tensors = {name: Tensor("BF16", bits) for name, bits in self.checkpoint(step).items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(write_tensors(tensors, {"format": "pt"}))


def main() -> None:
    """Replays the trace, says what is in it, and writes checkpoints when asked."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    add_trace_option(parser)
    parser.add_argument("--write", metavar="DIR", type=Path, help="write step_%%06d.safetensors")
    parser.add_argument("--steps", help="comma-separated steps to write; all when left out")
    options = parser.parse_args()
    trace = Trace(find_trace(options.trace))
    print(f"{trace.folder}: {len(trace.names)} tensors, {trace.element_count} elements")
    for step, _, _ in trace.replay():
        changed = sum(positions.size for positions, _ in trace.read_changes(step).values())
        print(f"step {step}: {changed} changed, {changed / trace.element_count:.3%}")
    if options.write:
        every = [trace.anchor_step, *trace.steps]
        for step in map(int, options.steps.split(",")) if options.steps else every:
            trace.write_checkpoint(step, options.write / f"step_{step:06d}.safetensors")


if __name__ == "__main__":
    main()
