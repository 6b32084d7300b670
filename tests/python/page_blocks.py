"""Blocks of documentation, with the addresses of a test in the place of those they show."""

from __future__ import annotations

import re

from conftest import TREE

RUN, SERVER = "s3://bucket/run", "http://gpu7:8000"


def blocks(page: str, language: str, *, run: str, server: str = SERVER) -> list[str]:
    """The blocks of doc/frameworks/`page` in a language."""
    text = (TREE / "doc" / "frameworks" / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no block in {language}"
    return [block.replace(RUN, run).replace(SERVER, server) for block in found]
