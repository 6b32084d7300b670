"""Answers of a dashboard's server that never change: for pictures of the page, and for its words.

One run of 64 commits: two anchors, a merged delta, a jump of ten steps, a pause of a quarter of an hour, four
replicas of which one is silent and one falls behind. Figures come from a seeded generator.
"""

import hashlib
import json

import numpy as np

NOW = 1_790_000_000_000  # 2026-09-21T14:13:20Z; pages are opened with this clock
MINUTE = 60_000
ELEMENTS = 14_336_000
FULL_BYTES = 2 * ELEMENTS
LAYERS = ["model.embed_tokens.weight", *(f"layer {i}" for i in range(24)), "model.norm.weight"]


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def commits():
    random = np.random.default_rng(40)
    made, step, time = [], 0, NOW - 150 * MINUTE
    for seq in range(1, 65):
        anchor = seq in (2, 33)
        fence = seq == 1
        merge = seq == 34
        if not (fence or merge):
            step += 11 if seq == 20 else 1
        time += int(90_000 * random.uniform(0.8, 1.25)) + (15 * MINUTE if seq == 45 else 0)
        share = float(0.0052 * random.uniform(0.8, 1.2))
        changed = 0 if fence or merge else ELEMENTS if seq == 2 else int(ELEMENTS * share)
        made.append({
            "seq": seq, "epoch": 1, "step": step,
            "kind": "fence" if fence else "merge" if merge else "anchor" if seq == 2 else "delta",
            "makes_state": not (fence or merge), "time_ms": time,
            "delta_bytes": 0 if fence or merge or seq == 2 else int(changed * 10.6 / 8),
            "anchor_bytes": FULL_BYTES if anchor else 0,
            "changed_elements": changed, "total_elements": ELEMENTS,
            "state": sha(f"state {step}")[:32], "writer": "trainer-0:4711", "signer": "9f86d081884c7d65",
            "signature": "certified", "rewind_from": None, "hash": sha(f"commit {seq}"),
            "previous": sha(f"commit {seq - 1}") if seq > 1 else "", "follows": True if seq > 1 else None,
        })
    return made


COMMITS = commits()
HEAD = COMMITS[-1]
OFFSET = NOW - HEAD["time_ms"] - 40_000
for commit in COMMITS:
    commit["time_ms"] += OFFSET


def replica(name, behind, seen_ms, health, pause_ms):
    state = [c for c in COMMITS if c["makes_state"]][-1 - behind]
    return {"id": name, "seq": state["seq"], "step": state["step"], "lag_steps": behind, "seen_ms": seen_ms,
            "every_ms": 30_000, "pause_ms": pause_ms, "status": "stopped" if health == "stopped" else "following",
            "health": health}


REPLICAS = [
    replica("rollout-a", 0, 4_000, "ok", 9.8),
    replica("rollout-b", 0, 21_000, "ok", 11.4),
    replica("rollout-c-with-a-long-name-in-eu-west-1", 6, 12_000, "behind", 212.0),
    replica("rollout-d", 3, 420_000, "dead", 10.9),
    replica("evaluator", 40, 5_400_000, "stopped", None),
]


def beats():
    random = np.random.default_rng(41)
    made = []
    for number, told in enumerate(REPLICAS[:4]):
        points = []
        for i in range(80, -1, -1):
            time = NOW - told["seen_ms"] - i * 30_000
            lag = max(0, 6 - i // 8) if number == 2 else int(random.random() < 0.15)
            pause = told["pause_ms"] * random.uniform(0.85, 1.3)
            points.append([time, lag, round(float(pause), 3)])
        made.append({"id": told["id"], "beats": points})
    return {"kept_ms": 86_400_000, "replicas": made}


VERDICT = {
    "severity": "critical",
    "text": "replica 'rollout-d' silent for 7 min; 1 more",
    "concerns": [
        {"severity": "critical", "cause": "replica_silent", "text": "replica 'rollout-d' silent for 7 min"},
        {"severity": "warning", "cause": "lag_growing",
         "text": "replica 'rollout-c-with-a-long-name-in-eu-west-1' falls behind: 4, 5, 6 steps"},
    ],
}


def head(trouble=None):
    return {"head_seq": HEAD["seq"], "head_age_ms": 40_000, "expired": False, "verdict": VERDICT,
            "trouble": trouble, "read_ms": NOW - 1_000, "replicas": REPLICAS}


def run(trouble=None):
    return {
        "url": "s3://weights/runs/qwen-rl", "run": sha("run")[:32], "mode": "exclusive", "wisp_version": "0.1.0",
        "head_step": HEAD["step"], "interval_ms": 91_000, "floor_seq": 0, "full_bytes": FULL_BYTES,
        "full_bytes_from": "anchor", "total_elements": ELEMENTS,
        "anchors": [{"seq": c["seq"], "step": c["step"], "bytes": FULL_BYTES, "base_name": ""}
                    for c in COMMITS if c["anchor_bytes"]],
        "merged_deltas": [{"from_seq": 3, "from_step": COMMITS[2]["step"], "to_seq": 32,
                           "to_step": COMMITS[31]["step"], "bytes": 1_240_000}],
        "branches": [], "stored_objects": 131, "stored_bytes": 63_300_000, "join_objects": 32,
        "join_bytes": 31_900_000, "exponents": True, "made_ms": NOW, **head(trouble),
    }


def layers():
    random = np.random.default_rng(42)
    elements = [3_072_000, *[464_000] * 24, 128_000]
    by_layer = np.linspace(0.8, 1.2, len(LAYERS))
    steps = []
    for commit in COMMITS:
        if not commit["delta_bytes"]:
            continue
        cells = []
        for layer, count in enumerate(elements):
            share = 0.0052 * by_layer[layer] * random.uniform(0.85, 1.15)
            cells.append([layer, int(count * share), int(count * share * 1.3)])
        steps.append({"seq": commit["seq"], "step": commit["step"], "cells": cells})
    return {"layers": [{"name": n, "elements": e} for n, e in zip(LAYERS, elements)], "steps": steps,
            "pending": 0, "cursor": len(steps)}


def step(seq):
    commit = next(c for c in COMMITS if c["seq"] == seq)
    random = np.random.default_rng(seq)
    tensors = []
    for layer in range(12):
        for part, shape in (("self_attn.q_proj", [512, 512]), ("mlp.up_proj", [1024, 512])):
            elements = shape[0] * shape[1]
            changed = int(elements * 0.0052 * random.uniform(0.7, 1.3))
            tensors.append({"name": f"model.layers.{layer}.{part}.weight", "dtype": "BF16", "shape": shape,
                            "elements": elements, "changed": changed, "bytes": int(changed * 1.33),
                            "blocks": {"sparse": 1}})
    return {"seq": seq, "step": commit["step"], "codec": "swift", "file_bytes": commit["delta_bytes"],
            "payload_bytes": commit["delta_bytes"] - 900, "total_elements": ELEMENTS,
            "changed_elements": commit["changed_elements"], "base": sha("base")[:32], "result": sha("result")[:32],
            "tensors": tensors, "forecast": [{"binade": b, "share": 2.0 ** (-b - 14) * 0.6} for b in range(-14, -3)]}


def exponents(seq):
    weights = {-16: 60_000, -14: 200_000, -12: 700_000, -10: 2_300_000, -8: 4_600_000, -7: 3_900_000,
               -6: 2_000_000, -5: 520_000, -4: 40_000}
    return {"seq": seq, "binades": [{"binade": b, "elements": n, "changed": int(n * min(0.5, 2.0 ** (-b - 15)))}
                                    for b, n in weights.items()]}


def run_lines():
    well = {"severity": "ok", "text": "step 812, 31.0 s ago; 8 replicas follow", "concerns": []}
    late = {"severity": "warning", "text": "no step for 14 min, 9 times the usual 91.0 s", "concerns": []}
    rows = [("qwen-rl", VERDICT, HEAD["step"], 40_000, 91_000, 5, 6), ("math-8b", well, 812, 31_000, 60_000, 8, 0),
            ("tuned-from-qwen-rl-at-200", late, 233, 840_000, 91_000, 2, 0), ("fresh", None, None, None, None, None, None)]
    return {"runs": [{"id": number, "url": f"s3://weights/runs/{name}", "run": sha(name)[:32], "verdict": verdict,
                      "trouble": None, "head_step": at, "head_age_ms": age, "interval_ms": every,
                      "replicas": replicas, "lag_steps": lag}
                     for number, (name, verdict, at, age, every, replicas, lag) in enumerate(rows)]}


def answer(path, several=False, trouble=None):
    """What /api/… answers: a status and text."""
    if path == "/api/runs":
        runs = run_lines()
        return 200, json.dumps(runs if several else {"runs": runs["runs"][:1]})
    at = path.removeprefix("/api/runs/0/").split("?")[0].split("/")
    if at[0] == "commits" and len(at) > 1:
        seq = int(at[1])
        commit = next((c for c in COMMITS if c["seq"] == seq and c["delta_bytes"]), None)
        if commit is None:
            return 404, json.dumps({"error": "not_found", "message": f"commit {seq} has no delta"})
        return 200, json.dumps(exponents(seq) if at[-1] == "exponents" else step(seq))
    fresh = "after=0" in path
    table = {"run": run(trouble), "head": head(trouble), "commits": {"commits": COMMITS if fresh else []},
             "beats": beats() if fresh else {**beats(), "replicas": [{"id": r["id"], "beats": []} for r in REPLICAS[:4]]},
             "layers": layers()}
    return 200, json.dumps(table[at[0]])
