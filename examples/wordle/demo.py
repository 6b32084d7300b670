"""The whole story on one machine: a policy learns Wordle, its weights travel through a bucket.

    python demo.py FOLDER [--minutes 5] [--servers 2] [--bucket URL] [--model DIR] [--engine vllm]

Starts the environment, the rollout servers, the trainer and a dashboard as processes of their own.
Half-way another server joins; then one is killed, and comes back. At the end every state that any
server ever held is compared with the states that the trainer committed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import demo_result
import wisp
from processes import Process, program
from screen import Screen, curve, mean, median, size, span

JOIN, KILL, RETURN = 0.5, 0.6, 0.7  # when, as shares of the training
READY = 300  # seconds that a program has to begin
RECENT = 50  # steps that a figure is the mean of
PROGRAMS = {
    "built-in": {
        "server": "rollout_server.py", "trainer": "trainer.py", "backlog": "96", "rate": "3e-6",
    },
    "vllm": {  # takes fewer steps in the same time
        "server": "vllm_rollouts.py", "trainer": "trainer_trl.py", "backlog": "48", "rate": "1e-5",
    },
}  # fmt: skip


@dataclass
class Seat:
    """A rollout server's place: its process, and the next one if that was killed."""

    name: str
    process: Process
    before: list[dict[str, Any]] = field(default_factory=list)  # what the killed one had said
    story: str = ""

    def said(self, *events: str) -> list[dict[str, Any]]:
        lines = self.before + self.process.lines
        return [line for line in lines if line.get("event") in events]

    @property
    def at(self) -> str:
        if not self.process.running:
            return "gone"
        moves = [line["step"] for line in self.process.lines if "state" in line]
        return str(moves[-1]) if moves else "…"


class Demo:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: Path = options.folder
        self.run: str = options.bucket
        self.programs = PROGRAMS[options.engine]
        self.screen = Screen()
        self.processes: list[Process] = []
        self.seats: list[Seat] = []
        self.commits: dict[int, Any] = {}  # by seq
        self.looked = 0.0

    def start(self, name: str, *command: object) -> Process:
        log = self.folder / "logs" / f"{name}.log"
        self.processes.append(Process(name, [str(part) for part in command], log))
        return self.processes[-1]

    def warm_start(self) -> Path:
        if self.options.model:
            return self.options.model
        model = self.folder / f"model-{self.options.updates}"
        if not (model / "config.json").exists():
            self.screen.news("warm start: a new policy imitates a mediocre player, about a minute")
            command = [*program("warm_start.py"), model, "--updates", str(self.options.updates)]
            if subprocess.run(command).returncode:
                raise SystemExit("demo: the warm start failed")
        return model

    def open(self) -> None:
        options, model = self.options, self.warm_start()
        backlog = ("--backlog", self.programs["backlog"])
        environment = self.start("environment", *program("environment.py"), "--port", 0, *backlog)
        self.environment = environment.wait_for("address", READY)["address"]
        wisp.init(self.run)
        dashboard = self.start(
            "dashboard", options.wisp, "dashboard", self.run,
            "--json", "--port", options.port, "--commits", 10_000,
        )  # fmt: skip
        self.dashboard = dashboard.wait_for("address", READY)["address"]
        self.trainer = self.start(
            "trainer", *program(self.programs["trainer"]), self.run,
            "--model", model, "--environment", self.environment,
            "--learning-rate", options.learning_rate or self.programs["rate"],
            "--minutes", options.minutes,
            *(["--steps", options.steps] if options.steps else []),
        )  # fmt: skip
        self.seats = [
            Seat(name, self.server(name)) for name in "abcdefghijklmnop"[: options.servers]
        ]
        self.screen.news(f"bucket       {self.run}")
        self.screen.news(f"environment  {self.environment}")
        self.screen.news(f"dashboard    {self.dashboard}")
        for seat in self.seats:
            first = seat.process.wait_for("address", READY)
            where = f"{first['address']}, took step {first['step']} out of the bucket"
            self.screen.news(f"server {seat.name}     {where}")

    def server(self, name: str) -> Process:
        return self.start(
            f"server-{name}", *program(self.programs["server"]), self.run,
            "--environment", self.environment, "--name", name,
        )  # fmt: skip

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [line for line in self.trainer.lines if "reward" in line]

    def progress(self, steps: list[dict[str, Any]]) -> float:
        if not steps:
            return 0.0
        by_time = steps[-1]["seconds"] / (60 * self.options.minutes)
        return max(by_time, len(steps) / self.options.steps if self.options.steps else 0.0)

    def watch(self) -> None:
        """Shows the training, and lets happen to it what happens in life."""
        victim, late = self.seats[-1], None
        while self.trainer.running:
            for process in self.processes:
                if process is not self.trainer and not process.killed:
                    process.require_running()
            steps = self.steps
            done = self.progress(steps)
            now = f"at step {steps[-1]['step']}" if steps else ""
            if done >= JOIN and not late:
                name = chr(ord(self.seats[-1].name) + 1)
                late = Seat(name, self.server(name), story=f"joined late, {now}")
                self.seats.append(late)
                self.screen.news(f"-- server {name} starts late, {now}")
            if done >= KILL and not victim.story:
                victim.process.kill()
                victim.story = f"killed {now}"
                self.screen.news(f"-- server {victim.name} is killed without a warning, {now}")
            if done >= RETURN and victim.process.killed:
                victim.before += victim.process.lines
                victim.process = self.server(victim.name)
                victim.story += f", back {now}"
                self.screen.news(f"-- server {victim.name} comes back, {now}")
            self.look()
            self.show(steps)
            time.sleep(0.5)
        if self.trainer.end():
            raise SystemExit(f"demo: the trainer failed:\n{self.trainer.last_words()}")
        if not late or victim.process.killed:
            raise SystemExit(
                "demo: the training was over before a server could join late and return"
            )
        for seat in self.seats:  # who began late may be on its way still
            seat.process.wait_for("address", READY)
        self.screen.erase()

    def look(self, now: bool = False) -> None:
        """Takes in what was committed; seldom where every look is a request."""
        pause = 10.0 if "://" in self.run else 2.0
        if not now and time.monotonic() - self.looked < pause:
            return
        self.looked = time.monotonic()
        newest, count = max(self.commits, default=0), 64
        while len(lines := wisp.log(self.run, count)) == count and lines[-1].seq > newest + 1:
            count *= 4
        self.commits.update({line.seq: line for line in lines})

    def show(self, steps: list[dict[str, Any]]) -> None:
        if not steps:
            return
        newest, rewards = steps[-1], [step["reward"] for step in steps]
        solved = 100 * mean([step["solved"] for step in steps[-RECENT:]])
        deltas = [line for _, line in sorted(self.commits.items()) if line.delta_bytes][-RECENT:]
        sent = size(mean([line.delta_bytes for line in deltas]))
        changed = 100 * mean([line.changed_elements / line.total_elements for line in deltas])
        lines = [
            "",
            f"  reward   {curve(rewards)}  {mean(rewards[:RECENT]):.3f} → "
            f"{mean(rewards[-RECENT:]):.3f}",
            f"  trainer  step {newest['step']}, {newest['seconds']:.0f} s; {solved:.0f} % solved; "
            f"samples {newest['staleness']:.1f} steps old",
            f"  delta    {sent}; {changed:.2f} % of the weights changed",
        ]
        for seat in self.seats:
            pauses = [line["pause"] for line in seat.said("served")[-RECENT:]]
            pause = f"; pause {span(median(pauses))}" if pauses else ""
            lines.append(
                f"  server {seat.name} at {seat.at}{pause}{seat.story and '; '}{seat.story}"
            )
        where = ", ".join(f"{seat.name} {seat.at}" for seat in self.seats)
        brief = (
            f"step {newest['step']:4}  reward {mean(rewards[-RECENT:]):.3f}  solved {solved:.0f} %"
            f"  stale {newest['staleness']:.1f}  changed {changed:.2f} %  delta {sent}"
            f"  servers {where}"
        )
        self.screen.draw([*lines, ""], brief)

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill()


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="for the bucket, logs and pictures")
    parser.add_argument("--engine", choices=tuple(PROGRAMS), default="built-in")
    parser.add_argument(
        "--model", type=Path, help="to start from; warm_start.py makes one if absent"
    )
    parser.add_argument("--servers", type=int, default=2, help="at first; another joins half-way")
    parser.add_argument(
        "--bucket", help="where to put the run: s3://…; a folder in FOLDER if absent"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="of training")
    parser.add_argument("--steps", type=int, default=0, help="of training, if that is less")
    parser.add_argument("--updates", type=int, default=200, help="of the warm start")
    parser.add_argument("--learning-rate", type=float, help="3e-6; with vLLM 1e-5")
    parser.add_argument("--port", type=int, help="of the dashboard: 8400, or any if that is taken")
    parser.add_argument("--wisp", default=os.environ.get("WISP_BIN", "wisp"), help="the command")
    options = parser.parse_args()
    if not 1 <= options.servers <= 15:
        parser.error("--servers is a number from 1 to 15")
    if not options.minutes > 0 or options.steps < 0 or options.updates < 1:
        parser.error("--minutes, --steps and --updates are above zero")
    if options.model and not (options.model / "config.json").is_file():
        parser.error(f"{options.model} is no checkpoint of Hugging Face's layout: no config.json")
    if options.bucket and options.bucket.endswith("://"):
        parser.error(f"--bucket {options.bucket} names no bucket")
    if not shutil.which(options.wisp):
        parser.error(f"there is no command {options.wisp}; say --wisp PATH")
    options.folder = options.folder.resolve()
    if options.port is None:
        options.port = 8400 if is_free(8400) else 0
    name = time.strftime("wordle-%Y%m%d-%H%M%S")
    if not options.bucket:
        shutil.rmtree(options.folder / "bucket", ignore_errors=True)  # of the last time
        options.bucket = str(options.folder / "bucket")
    options.bucket = f"{options.bucket.rstrip('/')}/{name}"
    return options


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def stay() -> None:
    """At a terminal the dashboard goes on until somebody has seen enough."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    print("  the dashboard stays until Ctrl-C", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        print()


def main() -> int:
    options = options_of()
    shutil.rmtree(options.folder / "logs", ignore_errors=True)
    (options.folder / "logs").mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    demo = Demo(options)
    try:
        demo.open()
        demo.watch()
        result = demo_result.conclude(demo)
        pictures = demo_result.draw(result, options)
        print("\n" + demo_result.table(result) + "\n")
        print("\n".join(f"  {os.path.relpath(path)}" for path in pictures))
        print(f"  {demo.dashboard}   from `wisp dashboard {demo.run}`", flush=True)
        wrong = demo_result.complaints(result)
        for complaint in wrong:
            print(f"demo: {complaint}", file=sys.stderr)
        stay()
        return 1 if wrong else 0
    except KeyboardInterrupt:
        demo.screen.erase()
        print("stopped")
        return 130
    except wisp.Error as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        demo.close()


if __name__ == "__main__":
    sys.exit(main())
