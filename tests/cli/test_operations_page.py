"""doc/operations.md, typed: every line of its `sh` blocks, in order, ends as the page says."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np

import checkpoints
import st
from run_wisp import BINARY, PATIENCE

TREE = Path(__file__).resolve().parents[2]


def typed_lines():
    """Commands with the exit code that each is to have."""
    text = (TREE / "doc/operations.md").read_text()
    lines = "".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)).splitlines()
    for at, line in enumerate(lines):
        if line.startswith("# exit"):
            continue
        told = re.match(r"# exit (\d+)", lines[at + 1]) if at + 1 < len(lines) else None
        yield line, int(told[1]) if told else 0


def test_every_line_of_the_page_can_be_typed(tmp_path):
    random = np.random.default_rng(11)
    tensors = checkpoints.model(random)
    for step in (1, 2, 3):
        st.save(tmp_path / f"step_{step}.safetensors", tensors)
        tensors = checkpoints.trained(random, tensors)
    env = {**os.environ, "PATH": f"{Path(BINARY).parent}:{os.environ['PATH']}", "HOME": str(tmp_path),
           "XDG_CACHE_HOME": str(tmp_path / "cache")}
    count = 0
    for line, expected in typed_lines():
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=env, text=True,
                              capture_output=True, timeout=PATIENCE)
        assert done.returncode == expected, f"{line}\n{done.returncode}\n{done.stdout}{done.stderr}"
        count += 1
    assert count > 50
