"""Processes that the demo starts: each with a log; none outlives the demo."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A program under way. What it prints goes to `log`; lines of JSON are kept in `lines`."""

    def __init__(self, name: str, command: list[str | Path], log: Path) -> None:
        self.name = name
        self.log = log
        self.lines: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self.killed = False
        self._process = subprocess.Popen(
            [os.fspath(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_end_with_parent,
            start_new_session=True,  # Ctrl-C reaches the demo alone, which ends the others in order
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        with self.log.open("ab") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()
                try:
                    said = json.loads(line) if line.startswith(b"{") else None
                except ValueError:
                    said = None
                if isinstance(said, dict):
                    with self.changed:
                        self.lines.append(said)
                        self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, key: str, seconds: float) -> dict[str, Any]:
        """The first line of JSON with this key; SystemExit if the program ends or is too slow."""
        end = time.monotonic() + seconds
        with self.changed:
            while True:
                for line in self.lines:
                    if key in line:
                        return line
                left = end - time.monotonic()
                if left <= 0 or not self._reader.is_alive():
                    why = "says nothing" if self.running else "ended"
                    raise SystemExit(f"{self.name} {why}; its last words:\n{self.last_words()}")
                self.changed.wait(min(left, 0.5))

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def require_running(self) -> None:
        if not self.running:
            raise SystemExit(
                f"{self.name} ended with {self._process.returncode}:\n{self.last_words()}"
            )

    def wait(self, seconds: float) -> int:
        """Until it has ended and all it said has been read; it is killed if that takes too long."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(10)
        return self._process.returncode

    def end(self, seconds: float = 60) -> int:
        """Asks it to end, and waits."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        return self.wait(seconds)

    def kill(self) -> None:
        """As the machine would: without a warning."""
        self.killed = True
        if self.running:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(10)


def program(name: str) -> list[str | Path]:
    return [sys.executable, HERE / name]
