"""Weights that are handed over one by one: published bit for bit, and never held all at once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wisp
from wisp.publish import handed_changes
from wisp.publish.stream_publisher import StreamPublisher

torch = pytest.importorskip("torch")

from run_waits import until  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from test_stores import DictStore  # noqa: E402


def model(seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    return {
        "z.first": torch.randn(300, 40).to(torch.bfloat16),
        "a.last": torch.randn(77),
        "m.empty": torch.empty(0, 4),
        "b.scalar": torch.tensor(3.5),
    }


def changed(tensors: dict[str, Any], share: float, seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    return {
        name: torch.where(torch.rand(t.shape) < share, t + 1, t).to(t.dtype)
        for name, t in tensors.items()
    }


def fetched(run: Any, like: dict[str, Any]) -> dict[str, Any]:
    target = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
    with wisp.Follower(run, target) as follower:
        follower.sync()
    return target


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(
            one[n].contiguous().reshape(-1).view(torch.uint8).numpy(),
            other[n].contiguous().reshape(-1).view(torch.uint8).numpy(),
        )
        for n in one if one[n].numel()
    )


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[StreamPublisher]:
    made = StreamPublisher(str(tmp_path / "run"), scratch=tmp_path / "scratch")
    yield made
    made.close()


@pytest.mark.parametrize("on_host", [True, False], ids=["numpy", "torch"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.6, 1.0])
def test_every_state_arrives_bit_for_bit(
    publisher: StreamPublisher, share: float, on_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What compares on a device runs on every device that torch knows, the CPU among them.
    monkeypatch.setattr(handed_changes, "is_on_host", lambda source: on_host)
    state = model()
    assert publisher.publish(iter(state.items()), 1).step == 1
    for step in (2, 3, 4):
        state = changed(state, share, step)
        stats = publisher.publish(iter(state.items()), step)
        assert (stats.step, stats.kind) == (step, "delta")
        assert same(fetched(publisher.url, state), state)


def test_a_tensor_is_let_go_of_before_the_next_is_asked_for(publisher: StreamPublisher) -> None:
    state = model()
    publisher.publish(iter(state.items()))
    alive: list[weakref.ref[Any]] = []

    def hand_over() -> Iterator[tuple[str, Any]]:
        for name, tensor in changed(state, 0.9, 1).items():
            fresh = tensor.clone()
            alive.append(weakref.ref(fresh))
            yield name, fresh
            del fresh
            gc.collect()
            assert all(ref() is None for ref in alive[:-1])

    publisher.publish(hand_over())
    assert len(alive) == len(state)


def test_nothing_of_the_first_state_is_left_on_disk(
    publisher: StreamPublisher, tmp_path: Path
) -> None:
    publisher.publish(iter(model().items()))
    assert not list(tmp_path.glob("scratch/wisp-spool-*"))


def test_masters_are_rounded_to_the_dtype_of_the_run(tmp_path: Path) -> None:
    masters = {"w": torch.randn(200, 30)}
    publisher = StreamPublisher(str(tmp_path / "run"), dtype="bfloat16")
    for step in (1, 2):
        masters = {"w": masters["w"] + 1e-3}
        publisher.publish(iter(masters.items()), step)
        wanted = {"w": masters["w"].to(torch.bfloat16)}
        assert same(fetched(publisher.url, wanted), wanted)
    publisher.close()


def test_numpy_arrays_are_handed_over_too(tmp_path: Path) -> None:
    arrays = {"w": np.arange(1000, dtype=np.float32), "v": np.zeros(10, np.int64)}
    publisher = StreamPublisher(str(tmp_path / "run"))
    publisher.publish(iter(arrays.items()))
    arrays = {"w": arrays["w"] * 2, "v": arrays["v"]}
    publisher.publish(iter(arrays.items()))
    target = {name: np.zeros_like(array) for name, array in arrays.items()}
    with wisp.Follower(publisher.url, target) as follower:
        follower.sync()
    assert all(np.array_equal(target[name], arrays[name]) for name in arrays)
    publisher.close()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda m: {**m, "new": torch.zeros(3)}, "no tensor 'new'"),
        (lambda m: {n: t for n, t in m.items() if n != "a.last"}, "no 'a.last'"),
        (lambda m: {**m, "a.last": torch.zeros(78)}, r"F32 \[78\], and F32 \[77\] in the run"),
    ],
)
def test_a_state_of_another_model_is_refused_and_read_to_its_end(
    publisher: StreamPublisher, bad: Any, said: str
) -> None:
    state = model()
    publisher.publish(iter(state.items()), 1)
    handed = iter(bad(state).items())
    with pytest.raises(wisp.InvalidError, match=said):
        publisher.publish(handed, 2)
    assert next(handed, None) is None  # other ranks took part in all of it
    publisher.publish(iter(state.items()), 3)
    assert same(fetched(publisher.url, state), state)


def test_a_trainer_that_starts_again_goes_on_with_a_delta(tmp_path: Path) -> None:
    state = model()
    first = StreamPublisher(str(tmp_path / "run"))
    first.publish(iter(state.items()), 1)
    first.close()
    state = changed(state, 0.02, 5)
    second = StreamPublisher(str(tmp_path / "run"))
    assert second.publish(iter(state.items()), 2).kind == "delta"
    assert same(fetched(second.url, state), state)
    second.close()


def test_of_two_trainers_on_one_run_the_older_is_told(tmp_path: Path) -> None:
    state = model()
    older, newer = (StreamPublisher(str(tmp_path / "run")) for _ in range(2))
    older.publish(iter(state.items()), 1)
    newer.publish(iter(changed(state, 0.1, 1).items()), 2)
    with pytest.raises(wisp.FencedError):
        older.publish(iter(changed(state, 0.1, 2).items()), 2)
    newer.close()


def test_what_the_trainer_raises_comes_out_and_the_run_goes_on(publisher: StreamPublisher) -> None:
    state = model()
    publisher.publish(iter(state.items()), 1)

    def broken() -> Iterator[tuple[str, Any]]:
        yield "z.first", state["z.first"]
        raise RuntimeError("a rank died")

    with pytest.raises(RuntimeError, match="a rank died"):
        publisher.publish(broken(), 2)
    state = changed(state, 0.1, 1)
    publisher.publish(iter(state.items()), 2)
    assert same(fetched(publisher.url, state), state)


def test_quantised_states_are_those_of_a_publisher_that_has_the_whole_model(tmp_path: Path) -> None:
    state = {"model.layers.0.mlp.up_proj.weight": torch.randn(64, 128), "model.norm": torch.ones(8)}
    options: dict[str, Any] = {"quantize": "int8_channel", "dtype": torch.bfloat16}
    streamed = StreamPublisher(str(tmp_path / "streamed"), **options)
    held = dict(state)
    with wisp.Publisher(tmp_path / "whole", held, **options) as whole:
        for step in (1, 2):
            held.update(changed(held, 0.1, step))
            whole.publish(step)
            whole.flush()
            stats = streamed.publish(iter(held.items()), step)
            assert stats.state == whole.stats[-1].state
    streamed.close()



def test_a_store_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    store, state = DictStore(), model()
    publisher = StreamPublisher(store)
    publisher.publish(iter(state.items()), 1)
    store.fail_with = ConnectionError("away")
    original = wisp.Publisher.flush
    failures: list[Exception] = []

    def flush(self: wisp.Publisher) -> None:
        try:
            original(self)
        except ConnectionError as error:
            failures.append(error)
            store.fail_with = None
            raise

    monkeypatch.setattr(wisp.Publisher, "flush", flush)
    state = changed(state, 0.1, 2)
    assert publisher.publish(iter(state.items()), 2).step == 2
    assert failures
    assert same(fetched(store, state), state)
    publisher.close()


def test_a_store_that_stays_away_is_told_and_a_later_step_brings_everything() -> None:
    store, state = DictStore(), model()
    publisher = StreamPublisher(store, patience=0)
    publisher.publish(iter(state.items()), 1)
    store.fail_with = ConnectionError("away")
    state = changed(state, 0.1, 2)
    with pytest.raises(ConnectionError):
        publisher.publish(iter(state.items()), 2)
    store.fail_with = None
    state = changed(state, 0.1, 3)
    until(lambda: is_committed(publisher, state, 3))
    assert same(fetched(store, state), state)
    publisher.close()


def is_committed(publisher: StreamPublisher, state: dict[str, Any], step: int) -> bool:
    """Whether it was noticed that the store is back."""
    try:
        return publisher.publish(iter(state.items()), step).step == step
    except ConnectionError:
        return False


def test_weights_that_are_kept_do_not_wait_for_those_they_would_be_fused_with(tmp_path: Path) -> None:
    from wisp.quantize import NvFp4

    names = [f"layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
    state = {name: torch.randn(32, 64).to(torch.bfloat16) for name in names}
    rule = NvFp4(ignore=[r"k_proj$"])
    publisher = StreamPublisher(str(tmp_path / "run"), quantize=rule)
    with closing(publisher):
        publisher.publish(iter(state.items()), 0)
        for step in (1, 2):
            state = changed(state, 0.2, step)
            with wisp.Publisher(tmp_path / f"whole-{step}", state, quantize=rule) as whole:
                whole.publish()
            assert publisher.publish(iter(state.items()), step).kind == "delta"
            wisp.export(publisher.url, tmp_path / f"streamed-{step}")
            wisp.export(tmp_path / f"whole-{step}", tmp_path / f"expected-{step}")
            found, wanted = (
                load_file(tmp_path / f"{kind}-{step}" / "model.safetensors")
                for kind in ("streamed", "expected")
            )
            assert torch.equal(found[names[1]], state[names[1]])
            assert same(found, wanted)
