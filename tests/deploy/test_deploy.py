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


# The chart, rendered by helm and held against Kubernetes' own schemas.
VALUES = {
    "sidecar": {},
    "daemonset": {"mode": "daemonset"},
    "trusting": {"trust.secret": "keys", "credentials.secret": "aws", "minimumStep": 40, "runId": "ab",
                 "serviceMonitor.enabled": "true", "maxStaleness": "10m"},
    "driving": {"server.drive": "vllm", "networkPolicy.enabled": "false"},
}


@pytest.fixture(scope="module")
def helm():
    program = TOOLS / "helm-3.22.0"
    if not program.exists():
        pytest.skip("helm is not built; tools/test_servers.sh helm-3.22.0 does it")
    return program


def rendered(helm, values):
    yaml = pytest.importorskip("yaml")
    flags = [part for name, value in {"run": "s3://weights/run", **values}.items() for part in ("--set", f"{name}={value}")]
    text = run(helm, "template", "--kube-version", "1.31.0", "policy", DEPLOY / "helm/wisp", *flags)
    return {part["kind"]: part for part in yaml.safe_load_all(text) if part}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_kubernetes_takes_the_chart(helm, values):
    validate = pytest.importorskip("kubernetes_validate")
    objects = rendered(helm, values)
    for kind, thing in objects.items():
        if kind != "ServiceMonitor":  # of Prometheus' operator, not of Kubernetes
            validate.validate(thing, "1.31", strict=True)
    assert {"Service"} < objects.keys()


def strict(schema):
    """As kubectl holds a file against it: a field that the schema does not know is a mistake."""
    if isinstance(schema, dict):
        closed = {"additionalProperties": False} if "properties" in schema else {}
        return {**closed, **{key: strict(value) for key, value in schema.items()}}
    return [strict(value) for value in schema] if isinstance(schema, list) else schema


def test_prometheus_operator_takes_the_service_monitor(helm):
    jsonschema = pytest.importorskip("jsonschema")
    definition = TOOLS / "servicemonitor-0.79.2.json"
    if not definition.exists():
        pytest.skip(f"there is no {definition}; tools/test_servers.sh {definition.name} fetches it")
    (version,) = json.loads(definition.read_text())["spec"]["versions"]
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}  # Kubernetes' own
    monitor = rendered(helm, VALUES["trusting"])["ServiceMonitor"]
    jsonschema.validate(monitor, schema)
    monitor["spec"]["endpoints"][0]["intervall"] = "1s"
    with pytest.raises(jsonschema.ValidationError, match="intervall"):
        jsonschema.validate(monitor, schema)


def test_helm_lints_the_chart_and_refuses_a_chart_without_a_run(helm):
    run(helm, "lint", "--strict", "--kube-version", "1.31.0", DEPLOY / "helm/wisp", "--set", "run=s3://weights/run")
    refused = subprocess.run([helm, "template", "--kube-version", "1.31.0", "policy", DEPLOY / "helm/wisp"], capture_output=True, text=True)
    assert refused.returncode != 0 and "run" in refused.stderr


def test_the_commands_of_the_chart_are_commands_of_wisp(helm, tmp_path):
    """Each container's arguments are parsed by wisp itself, and the probe answers to the noted step."""
    for name, values in VALUES.items():
        objects = rendered(helm, values)
        pod = (objects.get("Deployment") or objects["DaemonSet"])["spec"]["template"]["spec"]
        follow = next(c for c in pod["containers"] if c["name"] == "follow")
        for container in (*pod["initContainers"], follow):
            # As the kubelet fills it in.
            arguments = [word.replace("$(POD_NAME)", "policy-0") for word in container["args"]]
            done = subprocess.run([os.environ["WISP_BIN"], *arguments, "--help"], capture_output=True, text=True)
            assert done.returncode == 0, (name, done.stderr)
    models = tmp_path / "models"
    models.mkdir()
    objects = rendered(helm, {"models.mountPath": models, "minimumStep": 40})
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    pull, follow = pod["initContainers"][0], pod["containers"][0]
    note = pull["args"][pull["args"].index("--on-step") + 1]
    probe = follow["readinessProbe"]["exec"]["command"]
    assert subprocess.run(probe, capture_output=True).returncode != 0
    for step, ready in ((39, False), (40, True), (101, True)):
        run("sh", "-c", note, env={**os.environ, "WISP_STEP": str(step)})
        assert (subprocess.run(probe).returncode == 0) == ready


def test_the_chart_carries_no_secret_and_no_root(helm):
    objects = rendered(helm, VALUES["trusting"])
    text = json.dumps(objects)
    assert "Secret" not in objects and '"runAsNonRoot": true' in text and '"secretName": "keys"' in text


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
        deadline = time.monotonic() + 240
        while True:
            seen = [asked("8001"), asked("8002")]
            if all(s["step"] is not None and s["step"] >= 2 for s in seen):
                break
            logs = "\n".join(p.read_text() for p in tmp_path.glob("*.log"))
            assert time.monotonic() < deadline and all(p.poll() is None for p in processes), logs
            time.sleep(0.1)
        # The same step is the same weights, whoever serves it.
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
    board = json.loads((DEPLOY / "monitoring/grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$run", ".*")
            rules = {"groups": [{"name": "board", "rules": [{"record": "wisp:panel", "expr": expression}]}]}
            run(promtool(), "check", "rules", "/dev/stdin", input=json.dumps(rules))
