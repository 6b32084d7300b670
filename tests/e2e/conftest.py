"""Places to hold runs: a folder, and a bucket on a real S3 server."""

import itertools
import subprocess

import pytest

import run_wisp
import s3_server
from session import Place, Session

NUMBER = itertools.count()


def pytest_sessionstart(session):
    if not run_wisp.BINARY.is_file():
        pytest.exit(f"no wisp at {run_wisp.BINARY}; build it, or set WISP_BIN", returncode=2)


@pytest.fixture(scope="session")
def server():
    with s3_server.S3Server() as started:
        yield started


@pytest.fixture
def bucket(server):
    """A run of its own on the server that all tests share."""
    name = f"run-{next(NUMBER)}"
    notes = server.folder / "meta" / server.bucket / name
    return Place(f"{server.url}/{name}", server.objects / name, server.environment(), notes)


@pytest.fixture
def folder(tmp_path):
    return Place(str(tmp_path / "bucket"), tmp_path / "bucket")


@pytest.fixture(params=["folder", "bucket"])
def place(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def session(tmp_path, place):
    return Session(tmp_path, place).init()


@pytest.fixture
def small_disk(tmp_path):
    """Makes file systems of a given size, for as long as the test runs."""
    mounted = []

    def mount(name, megabytes):
        disk = tmp_path / name
        disk.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", disk],
                              capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot mount a small file system here: {done.stderr.decode().strip()}")
        mounted.append(disk)
        return disk

    yield mount
    for disk in mounted:
        subprocess.run(["umount", "--lazy", disk], check=True)
