"""Pictures of a run: bytes per step, where the changes are, and where the time goes.

Needs matplotlib (`pip install wisp-sync[plot]`). Figures are made without pyplot, so nothing pops
up and no backend is chosen: a notebook shows what is returned, `figure.savefig` keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from . import _native, runs
from .errors import Error, NotFoundError
from .publish.publisher import PublishStats
from .reports import human_bytes
from .runs import TrustedKeys
from .stores import RunAddress, location

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["run"]

_PHASES = ("blocked", "upload", "commit", "baseline")


def layer_of(name: str) -> str:
    """Tensors of one layer belong together: "model.layers.3.mlp.up_proj.weight" is "layers.3"."""
    found = re.search(r"([A-Za-z_]+)\.(\d+)(?:\.|$)", name)
    if found:
        return f"{found.group(1)}.{found.group(2)}"
    stem = re.sub(r"\.(weight|bias)$", "", name)
    return stem.removeprefix("model.")


def _order(layer: str) -> tuple[bool, str, int]:
    stem, _, number = layer.rpartition(".")
    return (True, stem, int(number)) if number.isdigit() else (False, layer, 0)


def run(
    run: RunAddress,
    *,
    count: int = 100,
    stats: Iterable[PublishStats] = (),
    trust: TrustedKeys = None,
) -> Figure:
    """Draws the newest `count` commits that are still there; reads their deltas for the heat map.

    `stats` is `publisher.stats`, for the times of each phase; the bucket does not know them.
    """
    from matplotlib.figure import Figure

    place = location(run)
    lines = [line for line in reversed(runs.log(place, count, trust=trust))]
    steps = [line for line in lines if line.changed_elements and line.kind in ("delta", "anchor")]
    stats = list(stats)
    figure = Figure(figsize=(9, 9.5 if stats else 7), layout="constrained")
    panels = figure.subplots(3 if stats else 2, 1, height_ratios=[2, 3, 2][: 3 if stats else 2])
    figure.suptitle(f"{place.url}", fontsize=11)
    _draw_bytes(panels[0], lines, steps)
    _draw_layers(figure, panels[1], place, steps, runs.trust_of(trust))
    if stats:
        _draw_phases(panels[2], stats)
    return figure


def _draw_bytes(
    panel: Axes, lines: list[_native.CommitSummary], steps: list[_native.CommitSummary]
) -> None:
    deltas = [line for line in steps if line.delta_bytes]
    anchors = [line for line in lines if line.anchor_bytes]
    if deltas:
        panel.bar([d.step for d in deltas], [d.delta_bytes for d in deltas], label="delta")
    if anchors:
        full = max(a.anchor_bytes for a in anchors)
        panel.axhline(
            full, color="tab:red", linewidth=1, label=f"full weights, {human_bytes(full)}"
        )
        panel.plot(
            [a.step for a in anchors],
            [a.anchor_bytes for a in anchors],
            "v",
            color="tab:red",
            label="anchor",
        )
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(lambda value, _: human_bytes(value))
    panel.set_title("bytes per step", fontsize=10, loc="left")
    panel.set_xlabel("step")
    if deltas or anchors:
        panel.legend(fontsize=8, loc="center right", framealpha=0.9)


def _draw_layers(
    figure: Figure,
    panel: Axes,
    place: _native.Location,
    steps: list[_native.CommitSummary],
    trust: _native.Trust,
) -> None:
    changes: dict[int, dict[str, int]] = {}
    elements: dict[str, int] = {}  # a delta names only tensors that changed
    for line in steps:
        if not line.delta_bytes:
            continue
        try:
            tensors = _native.changes_by_tensor(place, line.seq, trust)
        except NotFoundError:
            continue
        except Error as error:
            figure.text(0.01, 0.01, f"step {line.step}: {error}", fontsize=7, wrap=True)
            continue
        changes[line.step] = {name: changed for name, _, changed, _ in tensors}
        elements.update({name: count for name, count, _, _ in tensors})
    panel.set_title("share of each layer that changed", fontsize=10, loc="left")
    panel.set_xlabel("step")
    names = sorted({layer_of(name) for name in elements}, key=_order)
    if not names:
        panel.text(0.5, 0.5, "no deltas", ha="center", transform=panel.transAxes)
        return
    rows = {name: row for row, name in enumerate(names)}
    sizes = np.zeros((len(names), 1))
    for name, count in elements.items():
        sizes[rows[layer_of(name)]] += count
    grid = np.zeros((len(names), len(changes)))
    for column, changed in enumerate(changes.values()):
        for name, count in changed.items():
            grid[rows[layer_of(name)], column] += count
    grid *= 100 / np.maximum(sizes, 1)
    image = panel.imshow(grid, aspect="auto", interpolation="nearest", cmap="viridis", vmin=0)
    panel.set_yticks(range(len(names)), names, fontsize=max(4, min(8, 160 // len(names))))
    labels = list(changes)
    every = max(1, len(labels) // 12)
    panel.set_xticks(range(0, len(labels), every), [str(s) for s in labels[::every]])
    figure.colorbar(image, ax=panel, label="% changed", pad=0.01)


def _draw_phases(panel: Axes, stats: list[PublishStats]) -> None:
    steps = [s.step for s in stats if s.kind == "delta"]
    bottom = np.zeros(len(steps))
    for phase in _PHASES:
        seconds = np.array([getattr(s, f"{phase}_seconds") for s in stats if s.kind == "delta"])
        label = "blocked (diff + encode)" if phase == "blocked" else phase
        panel.bar(steps, seconds, bottom=bottom, label=label)
        bottom += seconds
    panel.set_title(
        "time of each phase; only the first holds the training up", fontsize=10, loc="left"
    )
    panel.set_xlabel("step")
    panel.set_ylabel("seconds")
    panel.legend(fontsize=8, ncols=4)
