"""deploy/: each file held against the program that would read it, as far as that runs here."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
DEPLOY = TREE / "deploy"
TOOLS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "wisp-tools/bin"
sys.path.insert(0, str(TREE / "tests/s3"))


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("unit", sorted(p.name for p in (DEPLOY / "systemd").glob("*.*")))
def test_systemd_takes_the_units(unit, tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd is not installed")
    # It looks whether the program is there.
    for source in (DEPLOY / "systemd").glob("*.*"):
        text = source.read_text().replace("/usr/bin/wisp", os.environ["WISP_BIN"])
        (tmp_path / source.name.replace("@", "@run")).write_text(text)
    verify = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / unit.replace("@", "@run")],
                            capture_output=True, text=True, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"})
    complaints = [line for line in verify.stderr.splitlines() if str(tmp_path) in line or "@run" in line]
    assert verify.returncode == 0 and not complaints, verify.stderr


def test_the_follower_unit_is_hardened(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd is not installed")
    shown = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                            DEPLOY / "systemd/wisp-follow@.service"], capture_output=True, text=True)
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", shown.stdout)
    assert level, shown.stdout + shown.stderr
    assert float(level[1]) <= 2.0, shown.stdout


def test_no_unit_shares_its_cache_with_another_instance():
    """systemd gives the folder to the user of the last unit started, and each instance has its own user."""
    folders = set()
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        text = unit.read_text()
        (folder,) = re.findall(r"^CacheDirectory=(.*)$", text, re.M)
        assert folder.endswith("/%i") and re.search(rf"XDG_CACHE_HOME=/var/cache/{folder}\s", text), unit
        folders.add(folder)
    assert len(folders) == 2


@pytest.mark.parametrize("file", ["container/Containerfile", "container/vllm.Containerfile", "compose/Containerfile"])
def test_hadolint_finds_nothing(file):
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not hadolint:
        pytest.skip("hadolint is not installed")
    run(hadolint, "--ignore", "DL3013", DEPLOY / file)


SCRIPTS = [DEPLOY / "slurm/rollouts.sbatch", *sorted((TREE / "tools").glob("*.sh"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script):
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if not shellcheck:
        pytest.skip("shellcheck is not installed")
    run(shellcheck, "--severity", "warning", script)


FRESH_MACHINE = """
set -euo pipefail
verb=aarch64 architecture=amd64 cache={0}/cache binfmt={0} binfmt_settings={0} registered=
die() {{ echo "$*"; exit 1; }}
{1}
register_qemu
[[ -e {0}/qemu-aarch64 ]] || echo enabled >{0}/qemu-aarch64  # as the kernel does
echo registered
read -r _
unregister_qemu
"""


def test_fresh_machines_that_run_at_once_leave_qemu_to_the_last(tmp_path):
    """The kernel's folder is stood in for."""
    script = (TREE / "tools/fresh_machine.sh").read_text()
    functions = [re.search(rf"^{name}\(\) {{\n.*?^}}\n", script, re.M | re.S)[0]
                 for name in ("register_qemu", "unregister_qemu")]
    text = FRESH_MACHINE.format(tmp_path, "\n".join(functions))
    entry = tmp_path / "qemu-aarch64"
    (tmp_path / "qemu-aarch64.conf").write_text(":qemu-aarch64:")

    def start():
        machine = subprocess.Popen(["bash", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert machine.stdout.readline() == "registered\n"
        return machine

    def end(machine):
        machine.communicate("\n", timeout=60)
        assert machine.returncode == 0

    (tmp_path / "register").touch()
    first, second = start(), start()
    assert (tmp_path / "register").read_text() == ":qemu-aarch64:"
    end(first)
    assert entry.read_text() == "enabled\n"
    end(second)
    assert entry.read_text() == "-1\n"
    # Gone already, by whatever hand.
    entry.unlink()
    third = start()
    entry.unlink()
    end(third)
    # The machine's own stays.
    entry.write_text("enabled\n")
    end(start())
    assert entry.read_text() == "enabled\n"


def test_what_passing_tests_skipped_is_told_at_the_end(tmp_path):
    log = tmp_path / "build/release/Testing/Temporary/LastTest.log"
    log.parent.mkdir(parents=True)
    log.write_text("1/1 Testing: cli\n12 passed, 1 skipped in 3s\nSKIPPED [2] tests/cli/test_a.py:7: needs root\nTest Passed.\n")
    (tmp_path / "tools").mkdir()
    shutil.copy(TREE / "tools/untested.sh", tmp_path / "tools/untested.sh")
    told = run(tmp_path / "tools/untested.sh").splitlines()
    assert "NOT TESTED (release): tests/cli/test_a.py:7: needs root" in told
    # And every test that pytest runs for ctest names what it skips, and last what failed.
    calls = re.findall(r"-m pytest -q( -rsfE\b)?", (TREE / "CMakeLists.txt").read_text())
    assert len(calls) >= 5 and all(calls), calls


def test_cibuildwheel_takes_the_configuration():
    """Its containers do not run here; which wheels it would build, it says."""
    program = Path(sys.executable).with_name("cibuildwheel")
    if not program.exists():
        pytest.skip("cibuildwheel is not installed")
    wheels = run(program, "--print-build-identifiers", "--platform", "linux", TREE).split()
    assert sorted(wheels) == [f"cp3{minor}-manylinux_{machine}" for minor in (10, 11, 12)
                              for machine in ("aarch64", "x86_64")]


def test_the_batch_job_starts_trainer_and_servers(tmp_path):
    """Slurm's commands are stood in for: what is started where is the job's own doing."""
    for name, text in {
        "scontrol": "printf 'n0\\nn1\\nn2\\n'",
        "srun": 'echo "$@" >>"$TRACE"; case $* in *n0*) sleep 0.2 ;; esac',
        "wisp": 'exec "$WISP_BIN" "$@"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TRACE": str(tmp_path / "trace"),
                   "RUN": str(tmp_path / "run"), "MODEL": "m", "SLURM_JOB_NODELIST": "n[0-2]"}
    for _ in range(2):  # the run that is there already goes on
        run("bash", DEPLOY / "slurm/rollouts.sbatch", env=environment)
    calls = (tmp_path / "trace").read_text().splitlines()
    assert sum("--nodelist=n0" in c and "train.py" in c for c in calls) == 2
    assert sum("vllm serve m" in c and f'"run": "{tmp_path}/run"' in c for c in calls) == 4


# The compose file's services, as processes.
@pytest.fixture
def services():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"]


def test_two_servers_follow_the_trainer_of_the_compose_file(services, tmp_path):
    pytest.importorskip("wisp")
    from s3_server import free_port, tool

    places = {"/data": tmp_path / "data", "/meta": tmp_path / "meta"}
    for folder in services["s3"]["tmpfs"]:
        (tmp_path / folder.lstrip("/")).mkdir(parents=True)
    ports = {name: str(free_port()) for name in ("7070", "8001", "8002")}

    def local(word):
        word = str(places.get(word, word)).replace("//s3:7070", f"//127.0.0.1:{ports['7070']}")
        return f"127.0.0.1:{ports['7070']}" if word == ":7070" else ports.get(word, word)

    def start(name, program=()):
        service = services[name]
        command = [*program, *map(local, service["command"])]
        if command[0] == "python":
            command[0] = sys.executable
        environment = {**os.environ, "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                       **{k: local(v) for k, v in service["environment"].items()}}
        log = open(tmp_path / f"{name}.log", "wb")
        return subprocess.Popen(command, cwd=DEPLOY / "compose", env=environment, stdout=log, stderr=log)

    def asked(name):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{ports[name]}/", timeout=5) as answer:
                return json.load(answer)
        except (OSError, urllib.error.HTTPError):
            return {"step": None}

    processes = [start("s3", [tool("versitygw-1.8.0")])]
    try:
        processes += [start(name) for name in ("trainer", "rollout1", "rollout2")]
        deadline = time.monotonic() + 600  # beyond it something hangs; a loaded machine is slow
        while True:
            seen = [asked("8001"), asked("8002")]
            if all(s["step"] is not None and s["step"] >= 2 for s in seen):
                break
            logs = "\n".join(p.read_text() for p in tmp_path.glob("*.log"))
            assert time.monotonic() < deadline and all(p.poll() is None for p in processes), logs
            time.sleep(0.1)
        # The same step is the same weights on every server.
        by_step = {}
        while len(by_step) < 2 or not any(len(d) == 2 for d in by_step.values()):
            for name in ("8001", "8002"):
                answer = asked(name)
                by_step.setdefault(answer["step"], {})[name] = answer.get("digest")
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert all(len(set(digests.values())) == 1 for digests in by_step.values())
    finally:
        for process in processes:
            process.kill()
            process.wait()


def promtool():
    found = shutil.which("promtool") or (TOOLS / "promtool" if (TOOLS / "promtool").exists() else None)
    assert found, "promtool is missing; tools/setup.sh fetches it for make test-all"
    return found


def test_prometheus_takes_the_alerts_and_they_fire_when_they_should():
    folder = DEPLOY / "monitoring"
    assert "SUCCESS" in run(promtool(), "check", "rules", folder / "alerts.yaml")
    assert "SUCCESS" in run(promtool(), "test", "rules", "alerts_test.yaml", cwd=folder)
    alerts = set(re.findall(r"- alert: (\w+)", (folder / "alerts.yaml").read_text()))
    tested = set(re.findall(r"alertname: (\w+)", (folder / "alerts_test.yaml").read_text()))
    assert alerts == tested


def test_prometheus_takes_what_the_grafana_dashboard_asks():
    dashboard = json.loads((DEPLOY / "monitoring/grafana.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$run", ".*")
            rules = {"groups": [{"name": "dashboard", "rules": [{"record": "wisp:panel", "expr": expression}]}]}
            run(promtool(), "check", "rules", "/dev/stdin", input=json.dumps(rules))
