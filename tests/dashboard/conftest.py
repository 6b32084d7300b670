"""A real run, the server over it, and a real browser in front of it."""

import json
import os
import pathlib
import select
import time

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

import checkpoints
import run_wisp
import runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHROMIUM = os.environ.get("WISP_CHROMIUM", "/usr/bin/chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--no-first-run", "--disable-dev-shm-usage"]


def first_line(process, seconds=60):
    """What a program says when it is ready."""
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    assert ready, f"{process.args} says nothing"
    line = process.stdout.readline()
    assert line, process.stderr.read().decode()
    return json.loads(line)


class Watched:
    """A run with a trainer, a replica that follows it, and a dashboard over it."""

    def __init__(self, folder):
        self.folder = folder
        self.trainer = runs.Trainer(folder)
        self.trainer.tensors = checkpoints.model(np.random.default_rng(3), layers=12, width=64)
        self.processes = []
        self.trainer.init()
        self.trainer.steps(6)

    def start(self, *arguments, **options):
        process = run_wisp.start(*arguments, **options)
        self.processes.append(process)
        return process

    def dashboard(self, *more, url=None):
        process = self.start("dashboard", url or self.trainer.url, "--port", 0, "--json", *more,
                             env={"AWS_SECRET_ACCESS_KEY": "hush-hush"})
        return process, first_line(process)["address"]

    def follow(self, name):
        process = self.start("follow", self.trainer.url, "--into", self.folder / name, "--id", name,
                             "--json")
        assert first_line(process)["step"] == self.head["step"]
        heartbeat = self.trainer.url / "replicas" / name
        deadline = time.monotonic() + 60
        while not heartbeat.exists() and time.monotonic() < deadline:
            assert process.poll() is None
        return process, heartbeat

    @property
    def log(self):
        done = run_wisp.wisp("log", self.trainer.url, "--json", "-n", 100)
        return json.loads(done.out)["commits"]

    @property
    def head(self):
        return self.log[0]

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def watched(tmp_path_factory):
    run = Watched(tmp_path_factory.mktemp("watched"))
    yield run
    run.stop()


@pytest.fixture(scope="session")
def address(watched):
    (watched.folder / "work").mkdir()
    return watched.dashboard("--work", watched.folder / "work")[1]


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser):
    """Opens an address; what the page complains about, and whom it asks, is held against it."""
    contexts, complaints = [], []

    def open_at(url, wait_for="[data-figure='step']", forgiven=(), **options):
        options.setdefault("viewport", {"width": 1200, "height": 900})
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(300_000)
        page.on("console", lambda message: complaints.append(message.text)
                if message.type in ("error", "warning")
                and not any(word in message.text for word in forgiven) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        home = url.split("#")[0].rsplit("/", 1)[0]
        page.on("request", lambda request: complaints.append(f"asked {request.url}")
                if not request.url.startswith((home, "data:", "blob:")) else None)
        page.goto(url)
        if wait_for:
            page.wait_for_selector(wait_for)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert not complaints, complaints
