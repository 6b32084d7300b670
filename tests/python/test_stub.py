"""The committed types are those of the module."""

from __future__ import annotations

import subprocess

from conftest import TREE

import wisp


def test_the_stub_is_that_of_the_module(tmp_path):
    made = tmp_path / "_native.pyi"
    subprocess.run([TREE / "tools/python_stub.sh", made], check=True, timeout=120)
    committed = (TREE / "python/wisp/_native.pyi").read_text(encoding="utf-8")
    assert made.read_text(encoding="utf-8") == committed, "run tools/python_stub.sh"
    assert "std::" not in committed


def test_every_public_name_is_there_and_documented():
    for name in wisp.__all__:
        value = getattr(wisp, name)
        assert name.startswith("__") or value.__doc__, name
    assert (TREE / "python/wisp/py.typed").exists()
