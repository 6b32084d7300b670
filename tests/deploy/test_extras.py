"""The extras of the package: what each asks for is to be had together, and the documents name them all."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
PROJECT = (TREE / "pyproject.toml").read_text()
EXTRAS = re.findall(r"^([\w-]+) = \[", PROJECT.split("[project.optional-dependencies]\n")[1].split("\n[")[0], re.M)


def resolved(extra):
    """By uv, which reads what packages say of themselves and downloads none. It is told what pip knows."""
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
    index = os.environ.get("PIP_INDEX_URL") or asked.stdout.strip()
    environment = {"UV_SYSTEM_CERTS": "true", "UV_HTTP_TIMEOUT": "180", **({"UV_DEFAULT_INDEX": index} if index else {})}
    return subprocess.run([Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", "--no-header",
                           "--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_34",
                           "--extra", extra, "pyproject.toml"],
                          cwd=TREE, capture_output=True, text=True, timeout=600, env={**environment, **os.environ})


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_an_extra_asks_for_can_be_installed(extra):
    done = resolved(extra)
    if done.returncode != 0 and re.search(r"dns error|connection refused|error sending request|timed? ?out", done.stderr, re.I):
        pytest.skip(f"no index of packages can be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    found = dict(re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", done.stdout, re.M))
    wanted = re.search(rf"^{extra} = \[(.*)\]$", PROJECT, re.M)[1]
    for name in re.findall(r'"([\w.-]+)', wanted):
        assert name.replace("_", "-").lower() in found, (name, found)
    assert "numpy" in found


def test_the_documents_name_every_extra():
    listed = re.search(r"Extras name what integrations need: (.*?)\.\n", (TREE / "doc/install.md").read_text(), re.S)[1]
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(EXTRAS)
