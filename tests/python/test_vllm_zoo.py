"""Every architecture of the zoo is followed by a real vLLM: see model_zoo."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

from model_zoo import ZOO, Entry, drive  # noqa: E402


@pytest.mark.parametrize(
    "entry",
    [pytest.param(e, id=e.name, marks=[] if e.quick else [pytest.mark.slow]) for e in ZOO],
)
def test_it_is_followed_bit_for_bit(entry: Entry, tmp_path: Path) -> None:
    found = drive(entry, tmp_path)
    if not found.served:
        pytest.skip(f"vLLM itself does not run it on this machine: {found.detail}")
    assert found.followed, found.detail
