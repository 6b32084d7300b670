"""A run at some place, the trainer that publishes to it, and the replicas that follow it."""

import json
import random
import shutil
import signal
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

import checkpoints
import st
from run_wisp import OK, answer, run, start, wisp

UNAVAILABLE, FENCED, DAMAGED, FORKED, GAP, DISK_FULL = 5, 11, 13, 14, 15, 17


@dataclass
class Place:
    """Where a run lies: its address, how to reach it, and its objects as files.

    What a server knows about the objects lies beside them, in `notes`.
    """
    url: str
    objects: Path
    environment: dict = field(default_factory=dict)
    notes: Path | None = None

    def via(self, endpoint):
        """The same place, reached through another endpoint."""
        through = {"AWS_ENDPOINT_URL": endpoint, "AWS_ENDPOINT_URL_S3": endpoint}
        return replace(self, environment={**self.environment, **through})

    def remove(self):
        for path in (self.objects, self.notes):
            if path is not None and path.exists():
                shutil.rmtree(path)

    def copy_to(self, folder):
        shutil.copytree(self.objects, folder / "objects")
        if self.notes is not None:
            shutil.copytree(self.notes, folder / "notes")

    def set_back(self, folder):
        """To what copy_to() took."""
        self.remove()
        shutil.copytree(folder / "objects", self.objects)
        if self.notes is not None:
            shutil.copytree(folder / "notes", self.notes)

    def keys(self, prefix=""):
        """The data of a run; what a server keeps for itself begins with a dot."""
        found = (p.relative_to(self.objects) for p in self.objects.rglob("*") if p.is_file())
        names = (str(p) for p in found if not any(part.startswith(".") for part in p.parts))
        return sorted(name for name in names if name.startswith(prefix))


class Session:
    """A trainer with its states on disk; every state ever trained can be compared with."""

    def __init__(self, folder, place, seed=1, layers=2, width=64, name="trainer"):
        self.folder = folder / name
        self.folder.mkdir()
        self.place = place
        self.rng = np.random.default_rng(seed)
        self.tensors = checkpoints.model(self.rng, layers=layers, width=width)
        self.baseline = self.folder / "baseline"
        self.states = {}

    def init(self):
        # What a probe finds is for s3_doctor and hub_gateway; here it would be most of what the tests do.
        answer("init", self.place.url, "--no-probe", env=self.place.environment)
        return self

    def train(self, step, share=0.01):
        if self.states:
            self.tensors = checkpoints.trained(self.rng, self.tensors, share)
        path = self.folder / f"state_{step}.safetensors"
        self.states[step] = st.save(path, self.tensors)
        return path

    def scramble(self, step):
        """A step in which every bit is another: its delta is as large as the weights."""
        self.tensors = {name: (dtype, shape, self.rng.bytes(len(data)))
                        for name, (dtype, shape, data) in self.tensors.items()}
        path = self.folder / f"state_{step}.safetensors"
        self.states[step] = st.save(path, self.tensors)

    def call(self, step, *more):
        return ["publish", self.place.url, self.states[step], "--step", step, "--rewind", "--baseline",
                self.baseline, "--json", *more]

    def publish(self, step, *more, share=0.01, place=None, **options):
        """Trains the step unless it is there already, and publishes it."""
        if step not in self.states:
            self.train(step, share)
        return wisp(*self.call(step, *more), env=(place or self.place).environment,
                    **options).json

    def try_publish(self, step, *more, place=None, **options):
        if step not in self.states:
            self.train(step)
        return run(*self.call(step, *more), env=(place or self.place).environment, **options)

    def begin(self, *arguments, place=None, **options):
        return start(*arguments, env=(place or self.place).environment, **options)

    def try_pull(self, replica, *more, place=None, **options):
        return run("pull", self.place.url, "--into", replica, "--json", *more,
                   env=(place or self.place).environment, **options)

    def pull(self, replica, *more, **options):
        done = self.try_pull(replica, *more, **options)
        assert done.code == OK, done
        return summary_of(done)

    def run_at(self, folder, verb, *more, **options):
        """A verb on a copy of the run."""
        return run(verb, folder, *more, "--json", **options)

    def try_pull_at(self, folder, replica, *more):
        return self.run_at(folder, "pull", "--into", replica, *more)

    def verb(self, name, *more, **options):
        return answer(name, self.place.url, *more, env=self.place.environment, **options)

    def log(self):
        """All commits, oldest first."""
        commits = self.verb("log", "-n", 100_000)["commits"]
        return sorted(commits, key=lambda commit: commit["seq"])

    def published(self):
        """The commits that made a new state: no fences, no anchors of a state that was there."""
        made = []
        for commit in self.log():
            if commit["kind"] not in ("delta", "anchor"):
                continue
            name = (commit["step"], commit["state"])
            if not made or name != (made[-1]["step"], made[-1]["state"]):
                made.append(commit)
        return made

    def holds(self, replica, step):
        return checkpoints.folder_tensors(Path(replica)) == st.load(self.states[step])[0]

    def follows(self, replica, step):
        """One pull brings the replica to this step, bit for bit."""
        told = self.pull(replica)
        assert told["step"] == step, told
        assert self.holds(replica, step)

    def is_sound(self):
        told = self.verb("scrub", "--replay")
        assert told["ok"] and not told["findings"], told
        seqs = [commit["seq"] for commit in self.log()]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), "the log is one line"
        return told


def summary_of(done):
    return json.loads(done.out.splitlines()[-1])


def kill_after(process, seconds):
    """Ends a process the hard way at some instant of its life; True if it was still alive."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(min(0.001, max(0.0, deadline - time.monotonic())))
    alive = process.poll() is None
    process.kill()
    process.communicate()
    assert process.returncode in (OK, -signal.SIGKILL), process.returncode
    return alive and process.returncode == -signal.SIGKILL


def wait_until(test, what, seconds=600):
    """For a condition that another process brings about."""
    deadline = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.002)


def timed(act):
    """What an act answers, and how long it took."""
    begun = time.monotonic()
    answered = act()
    return answered, time.monotonic() - begun


def instants(seed, rounds):
    """Seeded moments of a run as shares of the time one takes, and a little beyond its end."""
    chance = random.Random(seed)
    return [chance.uniform(0, 1.15) for _ in range(rounds)]
