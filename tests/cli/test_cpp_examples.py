"""The two programs of examples/cpp, each of forty lines: what one publishes, the other has in place."""

import os
import pathlib
import subprocess

import st

PUBLISHER, FOLLOWER = (os.environ.get(f"WISP_EXAMPLE_{name}") for name in ("PUBLISHER", "FOLLOWER"))
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/cpp"


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=600)


def test_a_publisher_and_a_follower_meet_in_a_bucket(chain, tmp_path):
    bucket, replica = tmp_path / "bucket", tmp_path / "replica"
    published = run(PUBLISHER, bucket, *chain.states[:3])
    assert published.returncode == 0, published.stderr
    assert [line.split(":")[0] for line in published.stdout.splitlines()] == ["step 0", "step 1", "step 2"]
    followed = run(FOLLOWER, bucket, replica, 2)
    assert followed.returncode == 0, followed.stderr
    assert followed.stdout.startswith("step 2 is in place")

    # Both go on where they stopped.
    published = run(PUBLISHER, bucket, chain.states[3])
    assert published.stdout.startswith("step 3: "), published
    followed = run(FOLLOWER, bucket, replica, 3)
    assert followed.returncode == 0, followed.stderr
    (held,) = replica.glob("*.safetensors")
    assert st.same_tensors(held, chain.states[3])


def test_what_cannot_be_done_is_said(chain, tmp_path):
    assert run(PUBLISHER).returncode == 2
    assert run(FOLLOWER, tmp_path).returncode == 2
    nowhere = run(FOLLOWER, tmp_path / "nothing", tmp_path / "replica", 1)
    assert nowhere.returncode == 1 and "there is no run at" in nowhere.stderr
    missing = run(PUBLISHER, tmp_path / "bucket", tmp_path / "missing.safetensors")
    assert missing.returncode == 1 and "missing.safetensors" in missing.stderr


def test_they_stay_short():
    for name in ("publisher", "follower"):
        assert len((EXAMPLES / f"{name}.cpp").read_text().splitlines()) <= 45
