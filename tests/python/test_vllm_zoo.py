"""Every architecture of the zoo is followed by a real vLLM: see model_zoo."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

from model_zoo import ZOO, Entry, drive, is_as_expected  # noqa: E402


def marks(entry: Entry, codec: str) -> list[pytest.MarkDecorator]:
    return [] if entry.quick and codec == "swift" else [pytest.mark.slow]


@pytest.mark.parametrize(
    ("entry", "codec"),
    [
        pytest.param(entry, codec, id=f"{entry.name}, {codec}", marks=marks(entry, codec))
        for entry in ZOO
        for codec in entry.codecs
    ],
)
def test_it_is_followed_bit_for_bit(entry: Entry, codec: str, tmp_path: Path) -> None:
    """Or not run by vLLM itself, for the reason that the zoo knows."""
    found = drive(entry, tmp_path, codec)
    assert is_as_expected(found), found.detail
