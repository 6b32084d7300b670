"""What `make wheel` and `make deb` built, installed on bare machines without a compiler."""

import os
import pathlib
import shutil
import subprocess

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("debootstrap"),
                                reason="bare machines need root and debootstrap")


@pytest.mark.parametrize("task, suite", [
    ("install-wheel", "bookworm"),
    ("install-wheel", "trixie"),
    ("install-deb", "bookworm"),
])
def test_a_bare_machine_installs_and_runs(task, suite):
    kind = {"install-wheel": "wisp_sync-*.whl", "install-deb": "*.deb"}[task]
    if not list((TREE / "build/dist").glob(kind)):
        pytest.skip(f"there is no {kind} in build/dist; `make wheel deb` makes them")
    done = subprocess.run([TREE / "tools/fresh_machine.sh", task, suite], capture_output=True, text=True, timeout=1700)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{task} on {suite} PASSED" in done.stdout
