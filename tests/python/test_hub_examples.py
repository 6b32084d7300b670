"""examples/hub as far as it goes without the Hub: linters, and its commands against loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loopback_hub
import pytest
from conftest import TREE, WISP_BIN

import wisp

HUB = TREE / "examples/hub"
SCRIPTS = sorted(HUB.rglob("*.sh"))
DOCKERFILES = sorted(HUB.rglob("Dockerfile"))


def linter(name: str) -> str:
    """As the environment of the tests has it (tests/requirements-torch.txt)."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, f"{name} is missing; run tools/setup.sh test"
    return found


def checked(*command: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name + "/" + path.name)
def test_scripts_pass_the_linter(script: Path) -> None:
    checked("bash", "-n", script)
    checked(linter("shellcheck"), script)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_dockerfiles_pass_the_linter_and_copy_what_is_there(dockerfile: Path) -> None:
    checked(linter("hadolint"), dockerfile)
    for line in dockerfile.read_text().splitlines():
        if line.startswith("COPY "):
            source = [word for word in line.split()[1:] if not word.startswith("--")][0]
            assert source == "wisp" or (dockerfile.parent / source).is_file(), line


def test_the_image_installs_what_the_build_needs() -> None:
    text = (HUB / "vllm-space/Dockerfile").read_text()
    setup = (TREE / "tools/setup.sh").read_text()
    needed = setup.partition("build=(")[2].partition(")")[0].split()
    assert [p for p in needed if p not in text and p not in ("make", "git", "ccache")] == []


@contextlib.contextmanager
def commands(folder: Path) -> Iterator[dict[str, str]]:
    """An environment in which `wisp`, `hf` and `python` are those under test."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "wisp").symlink_to((TREE / WISP_BIN).resolve())
    (bin_folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (bin_folder / "python").chmod(0o755)
    path = f"{bin_folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    yield {**os.environ, "PATH": path, "NAMESPACE": "acme", "BUCKET": "weights"}


def here() -> dict[str, str]:
    """The package under test, for programs that are started."""
    return {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}


def train(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [HUB / "trainer.sh", *command], env=environment, capture_output=True, text=True,
        timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "hush" not in done.stdout + done.stderr
    return done


PUBLISH = """
import os, sys, numpy, wisp
assert sys.argv[1] == os.environ["WISP_RUN"]
with wisp.Publisher(sys.argv[1], {"w": numpy.arange(99, dtype=numpy.float32)}) as publisher:
    publisher.publish(int(os.environ["STEP"]))
"""


def test_trainer_and_server_through_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("botocore")
    import hub_front

    with hub_front.HubFront() as front, commands(tmp_path) as environment:
        told = {**environment, **front.environment(), "RUN_NAME": "one", **here()}
        first = train({**told, "STEP": "1"}, "python", "-c", PUBLISH)
        assert "S3 gateway" in first.stderr
        again = train({**told, "STEP": "2"}, "python", "-c", PUBLISH)
        assert "gone on with" in again.stderr
        for name, value in front.environment().items():
            monkeypatch.setenv(name, value)
        run = f"{front.url}/one"
        status = wisp.status(run)
        assert not status.single_writer and status.head.step == 2
        # The Space's start, with a vllm that only says how it was called.
        (tmp_path / "bin/vllm").write_text('#!/bin/sh\necho "$WISP_MODE" "$WISP_RUN" "$@"\n')
        (tmp_path / "bin/vllm").chmod(0o755)
        served = subprocess.run(
            ["bash", HUB / "vllm-space/start.sh"], env={**told, "MODEL": "m", "WISP_RUN": run},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert served.returncode == 0, served.stderr
        assert f"self {run} serve m --host 0.0.0.0 --port 7860" in served.stdout
        assert '--weight-transfer-config {"backend": "wisp"}' in served.stdout
        assert front.leaks == []


@pytest.mark.skipif(
    loopback_hub.cas_server() is None or importlib.util.find_spec("hf_xet") is None,
    reason="the Xet test server is not built: make test-all builds it, once",
)
def test_trainer_with_a_token_alone(tmp_path: Path) -> None:
    with loopback_hub.LoopbackHub() as hub, commands(tmp_path) as environment:
        told = {**environment, **hub.environment(), **here()}
        done = train({**told, "STEP": "1"}, "python", "-c", PUBLISH)
        assert "own API" in done.stderr and "Generate S3 credentials" in done.stderr
        assert any(path.startswith("run/commits/") for path in hub.buckets["acme/weights"])


def ask(url: str, value: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    body = None if value is None else json.dumps(value).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, body), timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def test_the_environment_gives_tasks_and_rewards() -> None:
    program = HUB / "environment-space/environment.py"
    told = {**os.environ, "PORT": "0"}
    started = subprocess.Popen(
        [sys.executable, program], env=told, stdout=subprocess.PIPE, text=True
    )
    try:
        assert started.stdout is not None
        url = f"http://127.0.0.1:{started.stdout.readline().split()[-1]}"
        assert ask(f"{url}/health")[0] == 200
        task = ask(f"{url}/reset", {})[1]["task"]
        right = sum(int(part) for part in task.split("+"))
        assert ask(f"{url}/step", {"task": task, "completion": f"It is {right}."})[1]["reward"] == 1
        assert ask(f"{url}/step", {"task": task, "completion": "no idea"})[1]["reward"] == 0
        assert ask(f"{url}/step", {"task": "__import__", "completion": ""})[0] == 400
    finally:
        started.kill()
        started.wait()
        if started.stdout is not None:
            started.stdout.close()
