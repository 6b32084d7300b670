"""What came of the demo: the proof, the table, the pictures."""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from screen import curve, mean, median, size, span

if TYPE_CHECKING:
    from demo import Demo

ENDING = 300  # seconds that a server has to go to the newest step and to prove it
WINDOW = 50  # steps at either end of which the table tells the mean

Result = dict[str, Any]


def conclude(demo: Demo) -> Result:
    """Ends the servers, which go to the newest step, and holds all they held against the log."""
    endings = {}
    for seat in demo.seats:
        seat.process.end(ENDING)
        said = seat.said("ended")
        endings[seat.name] = said[-1] if said else {}
    demo.look(now=True)
    lines = [line for _, line in sorted(demo.commits.items())]
    committed = {(line.step, line.state) for line in lines}
    servers = []
    wrong = []
    for seat in demo.seats:
        moves = seat.said("joined", "applied")
        wrong += [
            {"server": seat.name, "step": move["step"], "state": move["state"]}
            for move in moves
            if (move["step"], move["state"]) not in committed
        ]
        servers.append({
            "name": seat.name,
            "story": seat.story,
            **{key: endings[seat.name].get(key) for key in ("step", "state", "games", "proven")},
            "held": len(moves),
            "joined": [move["step"] for move in moves if move["event"] == "joined"],
            "lags": [move["age"] for move in moves if move["event"] == "applied"],
            "pauses": [line["pause"] for line in seat.said("served")],
        })  # fmt: skip
    published = [line for line in lines if line.delta_bytes or line.anchor_bytes]
    return {
        "run": demo.run,
        "dashboard": demo.dashboard,
        "head": {"step": lines[-1].step, "state": lines[-1].state},
        "weights": published[0].total_elements,
        "full_bytes": published[0].anchor_bytes,
        "commits": [
            {"step": line.step, "delta_bytes": line.delta_bytes, "anchor_bytes": line.anchor_bytes,
             "changed": line.changed_elements}
            for line in published
        ],
        "steps": demo.steps,
        "servers": servers,
        "wrong": wrong,
    }  # fmt: skip


def complaints(result: Result) -> list[str]:
    """What must not be, whatever the machine."""
    found = [
        f"server {each['server']} held a state at step {each['step']} that was never committed"
        for each in result["wrong"]
    ]
    head = result["head"]
    for server in result["servers"]:
        if (server["step"], server["state"]) != (head["step"], head["state"]):
            found.append(f"server {server['name']} ended at {server['step']}, not {head['step']}")
        if not server["proven"]:
            found.append(f"server {server['name']} did not prove its weights")
    return found


def table(result: Result) -> str:
    steps, servers, full = result["steps"], result["servers"], result["full_bytes"]
    deltas = [line for line in result["commits"] if line["delta_bytes"]]
    anchors = [line["anchor_bytes"] for line in result["commits"] if line["anchor_bytes"]]
    sent = sum(line["delta_bytes"] for line in deltas)
    changed = mean([line["changed"] / result["weights"] for line in deltas])
    pauses = [pause for server in servers for pause in server["pauses"]]
    lags = [lag for server in servers for lag in server["lags"]]
    held = sum(server["held"] for server in servers)
    window = max(1, min(WINDOW, len(steps) // 4))

    def ends(key: str, scale: float = 1) -> tuple[float, float]:
        values = [scale * step[key] for step in steps]
        return mean(values[:window]), mean(values[-window:])

    rows = [
        ("steps", f"{len(steps)} in {steps[-1]['seconds']:.0f} s, "
                  f"{sum(step['games'] for step in steps):,} games"),
        ("reward", "{:.3f} → {:.3f}   ".format(*ends("reward"))
                   + curve([step["reward"] for step in steps])),
        ("solved", "{:.0f} → {:.0f} %".format(*ends("solved", 100))),
        ("changed", f"{100 * changed:.2f} % of {result['weights']:,} weights a step"),
        ("full weights", f"{size(full)} a step, {size(full * len(deltas))} in all"),
        ("deltas", f"{size(sent / max(1, len(deltas)))} a step, {size(sent)} in all"),
        ("anchors", f"{len(anchors)}, {size(sum(anchors))} in all"),
        ("ratio", f"{full * len(deltas) / max(1, sent):.0f} times smaller"),
        ("pause", f"{span(median(pauses))} median, {span(max(pauses, default=0))} longest"),
        ("lag", f"{span(median(lags))} from commit to in place, median"),
        ("staleness", f"{mean([step['staleness'] for step in steps]):.1f} steps, "
                      f"{max(step['staleness_max'] for step in steps)} at most"),
    ]  # fmt: skip
    for server in servers:
        proof = "every byte proven" if server["proven"] else "NOT PROVEN"
        story = f"; {server['story']}" if server["story"] else ""
        games = f"{server['games'] or 0:,} games"
        rows.append((f"server {server['name']}", f"step {server['step']}, {proof}, {games}{story}"))
    verdict = f"{len(result['wrong'])} NEVER COMMITTED" if result["wrong"] else "all committed ones"
    rows.append(("proof", f"{held:,} states were held by servers, {verdict}"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}  {value}" for name, value in rows)


def draw(result: Result, options: argparse.Namespace) -> list[Path]:
    """The files that stay."""
    folder: Path = options.folder
    made = [folder / "report.svg", folder / "report.html"]
    for path in made:
        command = [options.wisp, "report", result["run"], "-o", path, "--commits", "10000"]
        subprocess.run([*command, "--quiet"], check=True)
    (folder / "result.json").write_text(json.dumps(result))
    if picture(folder / "reward.png", result):
        made.append(folder / "reward.png")
    return made


def picture(path: Path, result: Result) -> bool:
    """Reward and bytes by step; False where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    rewards = [step["reward"] for step in result["steps"]]
    deltas = [line for line in result["commits"] if line["delta_bytes"]]
    window = max(1, len(rewards) // 15)
    smooth = [mean(rewards[max(0, i - window) : i + window]) for i in range(len(rewards))]
    figure = Figure(figsize=(9, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(range(1, len(rewards) + 1), rewards, color="#ccc", linewidth=0.6)
    above.plot(range(1, len(smooth) + 1), smooth, color="#2457c5", linewidth=2)
    above.set_ylabel("reward of a game")
    sizes = [line["delta_bytes"] for line in deltas]
    below.semilogy([line["step"] for line in deltas], sizes, color="#c55a24", label="delta")
    below.axhline(result["full_bytes"], color="#555", linestyle="--", label="full weights")
    below.set_ylabel("bytes on the wire")
    below.set_xlabel("step")
    below.legend()
    figure.savefig(path, dpi=120)
    return True
