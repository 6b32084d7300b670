"""A real small language model: every published step is on two followers as the trainer had it.

float32 masters and AdamW, bf16 published. One follower starts late, the other is killed and started
again; both are processes of their own that share nothing with the trainer but the bucket.
"""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest
from conftest import TREE, WISP_BIN

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import wisp  # noqa: E402

BINARY = TREE / WISP_BIN
STEPS = 30


class FollowerProcess:
    """`wisp follow` into a folder; after each move the checkpoint is put aside under its step."""

    def __init__(self, run: Path, folder: Path) -> None:
        self._folder = folder
        self._seen = folder.with_name(folder.name + "-seen")
        self._seen.mkdir(exist_ok=True)
        keep = f'cp "$WISP_DIR/model.safetensors" "{self._seen}/t" && mv "{self._seen}/t" '
        command = [
            BINARY, "follow", run, "--into", folder, "--poll", "20ms", "--quiet",
            "--on-step", keep + f'"{self._seen}/$WISP_STEP"',
        ]  # fmt: skip
        self.process = subprocess.Popen(command)

    def await_step(self, step: int) -> None:
        deadline = time.monotonic() + 60
        while not (self._seen / str(step)).exists():
            assert self.process.poll() is None, "the follower ended"
            assert time.monotonic() < deadline, f"step {step} did not arrive"
            time.sleep(0.005)

    def states(self) -> dict[int, dict[str, bytes]]:
        return {int(f.name): tensors_of(f) for f in self._seen.iterdir() if f.name != "t"}

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def tensors_of(file: Path) -> dict[str, bytes]:
    raw = file.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8 : 8 + length])
    head.pop("__metadata__", None)
    data = raw[8 + length :]
    return {n: data[e["data_offsets"][0] : e["data_offsets"][1]] for n, e in head.items()}


def bf16_state(model) -> dict[str, bytes]:
    tensors = wisp.tensors.named_tensors(model).tensors
    return {
        name: t.detach().to(torch.bfloat16).reshape(-1).view(torch.uint8).numpy().tobytes()
        for name, t in tensors.items()
    }


def test_followers_have_every_step_of_a_language_model(tmp_path):
    if not BINARY.exists():
        pytest.fail(f"{BINARY} is not built")
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=512, hidden_size=128, intermediate_size=384, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, tie_word_embeddings=True,
    )  # fmt: skip
    model = transformers.Qwen3ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-6)
    run = tmp_path / "bucket" / "run"
    expected = {}
    followers: dict[str, FollowerProcess] = {}
    try:
        with wisp.Publisher(run, model, dtype=torch.bfloat16) as publisher:
            publisher.attach(optimizer)
            expected[0] = bf16_state(model)
            followers["killed"] = FollowerProcess(run, tmp_path / "killed")
            followers["killed"].await_step(0)
            for step in range(1, STEPS + 1):
                text = torch.randint(512, (4, 32))
                model(input_ids=text, labels=text).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                publisher.flush()
                expected[step] = bf16_state(model)
                if step == 12:
                    followers["late"] = FollowerProcess(run, tmp_path / "late")
                if step == 15:
                    followers["killed"].kill()
                if step == 18:
                    followers["killed"] = FollowerProcess(run, tmp_path / "killed")
                for name, follower in followers.items():
                    if name == "late" or not 15 <= step < 18:
                        follower.await_step(step)
        stats = publisher.stats
        states = {name: follower.states() for name, follower in followers.items()}
    finally:
        for follower in followers.values():
            follower.kill()

    assert [s.step for s in stats] == list(range(STEPS + 1))
    assert set(states["late"]) == set(range(12, STEPS + 1))
    assert set(states["killed"]) >= set(range(15)) | set(range(18, STEPS + 1))
    for seen in states.values():
        for step, tensors in seen.items():
            assert tensors == expected[step], f"step {step}"
    # The bucket still leads to each of them.
    for line in wisp.log(run, 100):
        if line.kind == "delta":
            assert line.state == stats[line.step].state
    assert all(s.ratio > 5 for s in stats[1:])
    wisp.export(run, tmp_path / "middle", step=7)
    assert tensors_of(tmp_path / "middle" / "model.safetensors") == expected[7]
