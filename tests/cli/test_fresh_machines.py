"""What `make wheel`, `make deb` and cross-compiling built, installed on bare machines without a compiler."""

import os
import pathlib
import shutil
import subprocess

import pytest

TREE = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("debootstrap"),
                                reason="bare machines need root and debootstrap")
# As pip and dpkg name it.
NAMES = {"amd64": "x86_64", "arm64": "aarch64"}


def fresh_machine(*words):
    done = subprocess.run([TREE / "tools/fresh_machine.sh", *words], capture_output=True, text=True, timeout=5000)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    assert f"{words[0]} on {words[1]} PASSED" in done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def packages():
    """Made here and now, by the verb that makes them; lintian has a look, too."""
    done = subprocess.run(["make", "-C", TREE, "deb"], capture_output=True, text=True, timeout=5000)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    assert "wisp_" in done.stdout and "libwisp-dev_" in done.stdout


def install(task, suite, architecture):
    kind = {"install-wheel": f"wisp_sync-*_{NAMES[architecture]}.whl", "install-deb": f"*_{architecture}.deb"}[task]
    if not list((TREE / "build/dist").glob(kind)):
        pytest.skip(f"there is no {kind} in build/dist; `make wheel` or tools/fresh_machine.sh aarch64 makes them")
    return fresh_machine(task, suite, architecture)


def recorded_hashes(text):
    """Of the recorded run: each delta by each codec, and what comes out when it is applied."""
    lines = [line for line in text.splitlines() if line.startswith(("compact ", "swift ", "gap ", "plain "))]
    assert len(lines) == 4 * len(list((TREE / "bench/data/deltas").glob("*.safetensors")))
    return lines


@pytest.fixture(scope="module")
def made_here():
    """By the command of this build, with the best kernels that this machine has."""
    done = subprocess.run([TREE / "tests/golden/encode_recorded.sh", TREE / "bench/data", os.environ["WISP_BIN"]],
                          capture_output=True, text=True, check=True)
    return recorded_hashes(done.stdout)


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_a_bare_machine_installs_the_wheel_and_runs(suite):
    install("install-wheel", suite, "amd64")


def test_a_bare_machine_installs_the_packages_and_runs(packages, made_here):
    assert recorded_hashes(install("install-deb", "bookworm", "amd64")) == made_here


@pytest.mark.skipif(not shutil.which("qemu-aarch64-static"), reason="another architecture needs qemu-user-static")
class TestAarch64:
    """Cross-compiled, and run under qemu, which has NEON: what it computes is what this machine computes."""

    @pytest.mark.slow
    def test_unit_tests_golden_files_and_the_recorded_run_pass(self, made_here):
        fresh_machine("aarch64", "bookworm")
        assert recorded_hashes((TREE / "build/dist/aarch64-recorded.txt").read_text()) == made_here

    @pytest.mark.slow
    @pytest.mark.parametrize("suite", ["bookworm", "trixie"])
    def test_a_bare_machine_installs_the_wheel_and_runs(self, suite):
        install("install-wheel", suite, "arm64")

    @pytest.mark.slow
    def test_a_bare_machine_installs_the_packages_and_runs(self, made_here):
        assert recorded_hashes(install("install-deb", "bookworm", "arm64")) == made_here
