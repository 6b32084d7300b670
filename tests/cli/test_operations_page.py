"""doc/operations.md and doc/trust.md, typed: every line of their `sh` blocks, in order, ends as the page says."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import checkpoints
import st
from run_wisp import BINARY, PATIENCE

TREE = Path(__file__).resolve().parents[2]


def blocks_of(page):
    """Commands of each block with the exit code that each is to have."""
    for block in re.findall(r"^```sh\n(.*?)^```", (TREE / page).read_text(), re.M | re.S):
        lines = block.splitlines()
        codes = [re.match(r"# exit (\d+)", line) for line in [*lines[1:], ""]]
        yield [(line, int(code[1]) if code else 0) for line, code in zip(lines, codes)
               if not line.startswith("# exit")]


def type_in(folder, lines):
    random = np.random.default_rng(11)
    tensors = checkpoints.model(random)
    for step in (1, 2, 3):
        st.save(folder / f"step_{step}.safetensors", tensors)
        tensors = checkpoints.trained(random, tensors)
    (folder / "bin").mkdir()
    (folder / "bin/wisp").symlink_to(BINARY)
    env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder),
           "XDG_CACHE_HOME": str(folder / "cache")}
    for line, expected in lines:
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, text=True,
                              capture_output=True, timeout=PATIENCE)
        assert done.returncode == expected, f"{line}\n{done.returncode}\n{done.stdout}{done.stderr}"


def test_every_line_of_the_operations_page_can_be_typed(tmp_path):
    lines = [line for block in blocks_of("doc/operations.md") for line in block]
    assert len(lines) > 50
    type_in(tmp_path, lines)


@pytest.mark.parametrize("number", range(2))
def test_each_setup_of_the_trust_page_can_be_typed(tmp_path, number):
    type_in(tmp_path, list(blocks_of("doc/trust.md"))[number])


def test_no_link_of_the_documents_leads_nowhere():
    done = subprocess.run([TREE / "tools/docs_site.py", "--check"], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
