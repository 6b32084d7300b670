"""hf:// addresses on the command line, through a gateway that behaves as the Hub's is described."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file

import hub_front

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("WISP_BIN", ROOT / "build/release/bin/wisp")).resolve()


@pytest.fixture
def front():
    with hub_front.HubFront() as started:
        yield started


def wisp(front, *arguments, **extra):
    environment = {**os.environ, **front.environment(), **extra}
    done = subprocess.run([BINARY, *arguments], env=environment, capture_output=True, text=True,
                          timeout=100)
    for secret in (hub_front.SECRET_KEY, "hf_hush"):
        assert secret not in done.stdout + done.stderr
    return done


def publish(front, folder, step, **extra):
    generator = np.random.default_rng(step)
    save_file({"w": generator.integers(0, 1 << 16, 50_000, dtype=np.uint16)},
              folder / "step.safetensors")
    return wisp(front, "publish", f"{front.url}/run", folder / "step.safetensors",
                "--step", str(step), "--baseline", folder / "baseline", **extra)


def test_a_run_goes_through_the_gateway_and_its_cdn(front, tmp_path):
    assert wisp(front, "init", f"{front.url}/run").returncode == 0
    for step in (1, 2):
        done = publish(front, tmp_path, step)
        assert done.returncode == 0, done.stderr
        done = wisp(front, "pull", f"{front.url}/run", "--into", tmp_path / "policy")
        assert done.returncode == 0, done.stderr
    weights = (tmp_path / "policy/model.safetensors").read_bytes()
    assert weights[-100_000:] == (tmp_path / "step.safetensors").read_bytes()[-100_000:]
    assert front.leaks == []
    assert any(key.startswith("run/anchors/") for key in front.served)
    commits = [r for r in front.requests if r[1] == "PUT" and "/run/commits/" in r[2]]
    assert commits and all(conditional for _, _, _, conditional, _ in commits)


def test_the_doctor_names_the_way_and_spends_less_than_a_free_window(front):
    done = wisp(front, "doctor", front.url, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    found = {finding["name"]: finding for finding in report["findings"]}
    assert report["exclusive_create"]
    assert found["way"]["verdict"] == "pass" and "S3 gateway" in found["way"]["detail"]
    assert found["create_racing"]["verdict"] == "pass"
    assert len(front.requests) < 1000 and front.leaks == []


def test_a_used_up_window_is_waited_for(front, tmp_path):
    assert wisp(front, "init", f"{front.url}/run").returncode == 0
    front.set_quota(quota=0, window_seconds=1)
    front.requests.clear()

    def reopen(*_):
        front.quota = 1_000_000

    # The first answer is a refusal; the next window is open.
    real_count = front.count
    front.count = lambda *a: (real_count(*a), reopen())[0]
    done = publish(front, tmp_path, 1)
    assert done.returncode == 0, done.stderr
    refused = [when for when, _, _, _, refused in front.requests if refused]
    served = [when for when, _, _, _, refused in front.requests if not refused]
    assert len(refused) == 1
    assert min(served) - refused[0] >= 0.9, "not before the Hub said so"


@pytest.mark.parametrize("token", ["", "hf_hush"])
def test_without_keys_the_way_to_get_them_is_told(front, token):
    done = wisp(front, "doctor", front.url, HF_S3_ACCESS_KEY_ID="", HF_S3_SECRET_ACCESS_KEY="",
                HF_TOKEN=token)
    assert done.returncode == 12
    assert "Generate S3 credentials" in done.stderr
    assert ("Python" in done.stderr) == bool(token)
    assert front.requests == []


def test_another_hub_is_not_taken_for_the_public_one(front):
    done = wisp(front, "status", front.url, HF_S3_ENDPOINT="", HF_ENDPOINT="https://hub.example")
    assert done.returncode == 12 and "HF_S3_ENDPOINT" in done.stderr


def test_wrong_keys_and_wrong_buckets_are_told_apart(front):
    done = wisp(front, "init", front.url, HF_S3_SECRET_ACCESS_KEY="another")
    assert done.returncode == 12 and "HF_S3_ACCESS_KEY_ID" in done.stderr
    done = wisp(front, "init", "hf://buckets/acme/other")
    assert done.returncode == 10 and "hf buckets create" in done.stderr
