"""The chart of deploy/helm, rendered by helm: Kubernetes takes it, and wisp takes what it calls."""

import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
CHART = TREE / "deploy/helm/wisp"
TOOLS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "wisp-tools/bin"
for part in ("cli", "python", "s3"):
    sys.path.insert(0, str(TREE / "tests" / part))
IDENTITY = "0123456789abcdef0123456789abcdef"
DRIVES = ("self", "vllm", "sglang", "folder")
VALUES = {
    **{drive: {"server.drive": drive} for drive in DRIVES},
    "daemonset": {"mode": "daemonset"},
    "trusting": {"trust.secret": "keys", "credentials.secret": "aws", "minimumStep": 40, "runId": IDENTITY,
                 "serviceMonitor.enabled": "true", "maxStaleness": "10m", "server.drive": "vllm"},
    "open": {"networkPolicy.enabled": "false", "serviceMonitor.enabled": "true"},
}


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def helm():
    program = TOOLS / "helm-3.22.0"
    if not program.exists():
        pytest.skip("helm is not built; tools/test_servers.sh helm-3.22.0 does it")
    return program


def rendered(helm, values):
    yaml = pytest.importorskip("yaml")
    flags = [part for name, value in {"run": "s3://weights/run", **values}.items() for part in ("--set", f"{name}={value}")]
    text = run(helm, "template", "--kube-version", "1.31.0", "policy", CHART, *flags)
    return {part["kind"]: part for part in yaml.safe_load_all(text) if part}


def pod_of(objects):
    return (objects.get("Deployment") or objects["DaemonSet"])["spec"]["template"]["spec"]


def containers_of(pod):
    return {c["name"]: c for c in (*pod["initContainers"], *pod["containers"])}


def environment_of(container):
    return {entry["name"]: entry.get("value") for entry in container["env"]}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_kubernetes_takes_the_chart(helm, values):
    validate = pytest.importorskip("kubernetes_validate")
    objects = rendered(helm, values)
    for kind, thing in objects.items():
        if kind != "ServiceMonitor":  # of Prometheus' operator, not of Kubernetes
            validate.validate(thing, "1.31", strict=True)
    assert {"Service"} < objects.keys()
    # Names of ports that are asked for are ports that somebody opens, and that may be reached.
    opened = {port["name"]: port["containerPort"] for c in pod_of(objects)["containers"] for port in c.get("ports", [])}
    assert {port["targetPort"] for port in objects["Service"]["spec"]["ports"]} == opened.keys()
    for endpoint in objects.get("ServiceMonitor", {"spec": {"endpoints": []}})["spec"]["endpoints"]:
        assert endpoint["port"] in opened
    if "NetworkPolicy" in objects:
        reached = {port["port"] for rule in objects["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]}
        assert reached == set(opened.values())


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
    run(helm, "lint", "--strict", "--kube-version", "1.31.0", CHART, "--set", "run=s3://weights/run")
    refused = subprocess.run([helm, "template", "--kube-version", "1.31.0", "policy", CHART], capture_output=True, text=True)
    assert refused.returncode != 0 and "run" in refused.stderr



@pytest.mark.parametrize("drive", (*DRIVES, "daemonset"))
def test_wisp_takes_the_commands_of_the_chart(helm, drive, tmp_path):
    """They are run, and come as far as the run, which is not there; a wrong use would end sooner (2)."""
    from run_wisp import NO_RUN

    wisp = os.environ["WISP_BIN"]
    run(wisp, "key", "new", tmp_path / "trainer.key")
    called = 0
    for run_id, trust, stale in itertools.product((False, True), repeat=3):
        values = {"run": tmp_path / "nowhere", "models.mountPath": tmp_path / "models", "metrics.port": 0,
                  **({"mode": "daemonset"} if drive == "daemonset" else {"server.drive": drive}),
                  **({"runId": IDENTITY} if run_id else {}), **({"trust.secret": "keys"} if trust else {}),
                  **({"maxStaleness": "10m"} if stale else {})}
        containers = containers_of(pod_of(rendered(helm, values)))
        assert ("follow" in containers) == (drive != "self")
        for name in {"pull", "follow"} & containers.keys():
            # As the kubelet fills it in, and mounts it.
            words = [word.replace("$(POD_NAME)", "policy-0").replace("/etc/wisp/trust", str(tmp_path))
                     for word in containers[name]["args"]]
            done = subprocess.run([wisp, *words], capture_output=True, text=True, timeout=600)
            assert done.returncode == NO_RUN, (name, values, done.returncode, done.stderr)
            assert ("--run" in words) == run_id and ("--trust" in words) == trust
            called += 1
    assert called == (8 if drive == "self" else 16)


def test_a_server_that_follows_has_a_folder_that_nobody_else_writes(helm):
    """The plugin proves its plan by the folder that was loaded: a follower that rewrites it breaks that."""
    for drive in ("self", "vllm", "sglang"):
        containers = containers_of(pod_of(rendered(helm, {"server.drive": drive})))
        assert "--into" in containers["pull"]["args"]
        assert "--into" not in containers.get("follow", {"args": []})["args"]
    assert "--into" in containers_of(pod_of(rendered(helm, {"server.drive": "folder"})))["follow"]["args"]


def test_a_server_is_told_what_the_driver_is_told(helm):
    """Else it follows more laxly than a driver that trusts keys, and refuses that."""
    known = re.findall(r'"(\w+)": (?:str|float|int|lambda)', (TREE / "python/wisp/vllm/settings.py").read_text())
    for drive, mode in (("self", "self"), ("vllm", "push")):
        pod = pod_of(rendered(helm, {**VALUES["trusting"], "server.drive": drive}))
        server = containers_of(pod)["server"]
        # Not left to the image: vLLM's own has an entrypoint that says the same, and would be told twice.
        assert [*server["command"], *server["args"]][:3] == ["vllm", "serve", "/models/policy"]
        told = environment_of(server)
        assert told["WISP_RUN"] == "s3://weights/run" and told["WISP_MODE"] == mode
        assert told["WISP_RUN_ID"] == IDENTITY and told["WISP_TRUST"] == "/etc/wisp/trust/trainer.key.pub"
        assert {name.removeprefix("WISP_").lower() for name in told if name.startswith("WISP_")} <= set(known)
        mounted = {mount["mountPath"]: mount["name"] for mount in server["volumeMounts"]}
        assert mounted["/etc/wisp/trust"] == "trust"
        (shared,) = [v for v in pod["volumes"] if v["name"] == mounted["/dev/shm"]]
        assert shared["emptyDir"]["medium"] == "Memory"
    # Another engine heeds none of it.
    server = containers_of(pod_of(rendered(helm, {"server.drive": "folder"})))["server"]
    assert not [name for name in environment_of(server) if name.startswith("WISP_")]


def is_ready(container, **environment):
    command = container["readinessProbe"]["exec"]["command"]
    return subprocess.run(command, capture_output=True, env={**os.environ, **environment}, timeout=60).returncode == 0


@pytest.mark.parametrize("values", [VALUES["folder"], VALUES["daemonset"]], ids=["folder", "daemonset"])
def test_a_folder_is_ready_from_the_minimum_step_on(helm, values, tmp_path):
    objects = rendered(helm, {**values, "models.mountPath": tmp_path, "minimumStep": 40})
    containers = containers_of(pod_of(objects))
    assert not is_ready(containers["follow"])
    for name, step, ready in (("pull", 39, False), ("follow", 40, True), ("follow", 101, True), ("pull", 7, False)):
        words = containers[name]["args"]
        run("sh", "-c", words[words.index("--on-step") + 1], env={**os.environ, "WISP_STEP": str(step)})
        assert is_ready(containers["follow"]) == ready


@pytest.mark.parametrize("drive", ["self", "vllm"])
def test_a_vllm_server_is_ready_when_it_serves_the_minimum_step(helm, drive):
    """Also one that was started before that step was published."""
    from engine_servers import ScriptedVllm

    with ScriptedVllm() as vllm:
        pod = pod_of(rendered(helm, {"server.drive": drive, "server.port": vllm.port, "minimumStep": 40}))
        server = containers_of(pod)["server"]
        for step, ready in ((None, False), (39, False), (40, True), (101, True)):
            vllm.served = step
            assert is_ready(server, http_proxy="http://127.0.0.1:1") == ready
        assert is_ready(server, VLLM_API_KEY="secret") and "Bearer secret" in vllm.keys
    assert not is_ready(server)


def test_a_driven_sglang_server_is_ready_when_the_driver_saw_the_step(helm, tmp_path):
    """By the metrics of `wisp follow`, which are the same for every kind of server."""
    from engine_servers import ScriptedVllm
    from run_wisp import PATIENCE
    from runs import Trainer
    from s3_server import free_port

    trainer = Trainer(tmp_path)
    trainer.init("--no-probe")
    trainer.publish("--step", "39")
    port = free_port()
    with ScriptedVllm() as server:
        values = {"run": trainer.url, "server.port": server.port, "metrics.port": port, "minimumStep": 40, "poll": "20ms"}
        follow = containers_of(pod_of(rendered(helm, {**values, "server.drive": "sglang"})))["follow"]
        words = ["--vllm" if word == "--sglang" else word for word in follow["args"]]
        assert not is_ready(follow)
        process = subprocess.Popen([os.environ["WISP_BIN"], *words], stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + PATIENCE
            while server.served != 39:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            assert not is_ready(follow)
            trainer.publish("--step", "40")
            while not is_ready(follow):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            assert server.served == 40
        finally:
            process.kill()
            process.wait()


def test_the_chart_carries_no_secret_and_no_root(helm):
    objects = rendered(helm, VALUES["trusting"])
    text = json.dumps(objects)
    assert "Secret" not in objects and '"runAsNonRoot": true' in text and '"secretName": "keys"' in text
