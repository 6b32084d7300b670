"""Publishing and following over a real S3 server, from Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wisp

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "s3"))
import s3_server  # noqa: E402

torch = pytest.importorskip("torch")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with s3_server.S3Server() as started:
        for name, value in started.environment().items():
            monkeypatch.setenv(name, value)
        yield started


def weights(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {"w": torch.randn(1000, generator=generator).to(torch.bfloat16)}


def test_a_run_on_s3_arrives_bit_for_bit(server: Any) -> None:
    model = weights(0)
    target = {"w": torch.zeros(1000, dtype=torch.bfloat16)}
    with wisp.Publisher(f"{server.url}/run", model, on_error="raise") as publisher:
        publisher.publish(0)
        follower = wisp.Follower(f"{server.url}/run", target)
        follower.sync()
        for step in range(1, 4):
            model["w"][step::97] += 1
            publisher.publish(step)
            publisher.flush()
            assert follower.sync().step == step
            assert torch.equal(target["w"].view(torch.int16), model["w"].view(torch.int16))


def test_wrong_credentials_are_named(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(wisp.DeniedError):
        wisp.Publisher(f"{server.url}/run", weights(0))
    with pytest.raises(wisp.DeniedError):
        wisp.Follower(f"{server.url}/run", weights(0)).sync()


def test_training_outlives_its_bucket(server: Any) -> None:
    model = weights(0)
    publisher = wisp.Publisher(f"{server.url}/run", model)
    publisher.publish(0)
    publisher.flush()
    server.stop()
    model["w"][::7] += 1
    publisher.publish(1)
    with pytest.raises(wisp.UnavailableError):
        publisher.flush()
    server.start()
    model["w"][::11] += 1
    publisher.publish(2)
    publisher.close()
    target = {"w": torch.zeros(1000, dtype=torch.bfloat16)}
    assert wisp.Follower(f"{server.url}/run", target).sync().step == 2
    assert torch.equal(target["w"].view(torch.int16), model["w"].view(torch.int16))
