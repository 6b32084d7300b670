"""Runs the wisp binary the way a user does, and says what a refusal must look like."""

import hashlib
import json
import os
import pathlib
import subprocess
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("WISP_BIN", ROOT / "build/release/bin/wisp")).resolve()

# Beyond this a process hangs. No test measures speed by it: a loaded machine with sanitizers is slow.
PATIENCE = 600

OK, ERROR, USAGE, NO_RUN, LOCKED, DENIED = 0, 1, 2, 10, 11, 12
DAMAGED, WRONG_BASE, DISK_FULL, UNSUPPORTED = 13, 14, 17, 18


@dataclass
class Run:
    arguments: list
    code: int
    out: str
    err: str

    @property
    def json(self):
        lines = self.out.splitlines()
        assert len(lines) == 1, f"one JSON line expected: {self}"
        return json.loads(lines[0])


def is_sanitized():
    """Whether the binary carries a sanitizer, whose own memory and speed say nothing of wisp's."""
    return b"__asan_init" in BINARY.read_bytes()


def environment(extra=None):
    own = {k: v for k, v in os.environ.items() if not k.startswith("WISP_")}
    return {**own, **(extra or {})}


def start(*arguments, env=None, binary=BINARY, **options):
    return subprocess.Popen(
        [str(binary), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=environment(env), **options)


def run(*arguments, env=None, timeout=PATIENCE, **options):
    """Whatever the outcome; a run that ends by a signal is a crash and fails here."""
    process = start(*arguments, env=env, **options)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise AssertionError(f"wisp {arguments} hangs") from None
    done = Run(list(map(str, arguments)), process.returncode, out.decode(), err.decode())
    assert done.code >= 0, f"ended by a signal: {done}"
    assert "terminate called" not in done.err and "report this as a bug" not in done.err, done
    assert "ERROR: AddressSanitizer" not in done.err and "runtime error:" not in done.err, done
    return done


def wisp(*arguments, **options):
    """A run that must succeed."""
    done = run(*arguments, **options)
    assert done.code == OK, done
    return done


def answer(*arguments, **options):
    """The JSON a successful run prints."""
    return wisp(*arguments, "--json", **options).json


def snapshot(folder):
    """Every name under a folder with what it holds: equal before and after means untouched."""
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        key = str(path.relative_to(folder))
        found[key] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
    return found


def refused(code, *arguments, names=(), within=None, **options):
    """A run that must fail with this code, say why, and leave everything as it was.

    `names` are texts the message must contain; `within` is the folder that must not change.
    """
    before = snapshot(within) if within else None
    done = run(*arguments, **options)
    codes = code if isinstance(code, tuple) else (code,)
    assert done.code in codes, done
    assert done.err.strip(), f"no message: {done}"
    for text in names:
        assert str(text) in done.err, f"{text!r} is not in: {done.err}"
    if within:
        assert snapshot(within) == before, f"files changed: {done}"
    return done
