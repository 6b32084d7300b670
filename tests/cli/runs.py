"""Runs in folders, as a trainer and its replicas use them."""

import filecmp
import json

import numpy as np

import checkpoints
import st
from run_wisp import answer, wisp


class Trainer:
    """Publishes tiny checkpoints to a run, each a step after the last."""

    def __init__(self, folder, name="run", seed=7):
        self.folder = folder
        self.url = folder / name
        self.rng = np.random.default_rng(seed)
        self.tensors = checkpoints.model(self.rng, layers=1, width=32)
        self.baseline = folder / f"{name}.baseline"
        self.states = []

    def init(self, *more):
        return answer("init", self.url, *more)

    def train(self):
        """The next checkpoint on disk, not published yet."""
        if self.states:
            self.tensors = checkpoints.trained(self.rng, self.tensors)
        path = self.folder / f"{self.url.name}_{len(self.states)}.safetensors"
        self.states.append(st.save(path, self.tensors))
        return path

    def call(self, *more, checkpoint=None):
        return ["publish", self.url, checkpoint or self.train(), "--baseline", self.baseline, *more]

    def publish(self, *more, checkpoint=None, **options):
        return answer(*self.call(*more, checkpoint=checkpoint), **options)

    def steps(self, count):
        return [self.publish() for _ in range(count)]


def pull(url, into, *more, **options):
    """The events and the summary of one pull."""
    done = wisp("pull", url, "--into", into, "--json", *more, **options)
    *events, summary = [json.loads(line) for line in done.out.splitlines()]
    assert summary["verb"] == "pull" and summary["ok"] is True
    return events, summary


def holds(folder, checkpoint):
    """Whether a replica's folder is, byte for byte, a checkpoint of one file."""
    return filecmp.cmp(folder / "model.safetensors", checkpoint, shallow=False)
