"""Every Python block of doc/python.md runs, one after the other, in an empty folder; every page of
doc/frameworks has something to type in that some test runs."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import TREE, WISP_BIN

BLOCK = re.compile(r"^```python *(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["doc/python.md", "README.md"])
def test_every_block_runs(page, tmp_path):
    blocks = BLOCK.findall((TREE / page).read_text(encoding="utf-8"))
    # A block that names a package needs it.
    code = [b for need, b in blocks if not need or importlib.util.find_spec(need)]
    if not code:
        pytest.skip("no block to run")
    commands = tmp_path / "bin"
    commands.mkdir()
    shutil.copy(TREE / WISP_BIN, commands / "wisp")
    environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}"}
    folder = tmp_path / "work"
    folder.mkdir()
    script = folder / "blocks.py"
    script.write_text("\n".join(code), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )
    assert ran.returncode == 0, ran.stderr


#: Each page of doc/frameworks, and the test that takes a block from it and executes that.
EXECUTED = {
    "callbacks.md": "python/test_callback_frameworks.py::test_a_trainer_takes_the_callback",
    "folders.md": "cli/test_folder_page.py::test_the_commands_run_in_the_order_of_the_page",
    "nemo_rl.md": "python/test_nemo_rl.py::test_the_documented_configuration_makes_an_engine",
    "ray.md": "frameworks/test_ray.py::test_the_documented_program_runs",
    "sglang.md": (
        "python/test_sglang.py::test_the_command_of_the_page_brings_a_server_to_the_newest_step"
    ),
    "skyrl.md": "python/test_skyrl.py::test_skyrl_publishes_through_wisp",
    "verl.md": "frameworks/test_verl.py::test_verls_own_replica_serves_every_step",
    "vllm_trainer.md": "python/test_vllm_trainer.py::test_the_page_runs",
}


def test_every_page_of_a_framework_has_a_block_that_a_test_executes():
    pages = {page.name for page in (TREE / "doc" / "frameworks").glob("*.md")}
    assert pages == EXECUTED.keys()
    for page, named in EXECUTED.items():
        file, _, name = named.partition("::")
        module = ast.parse((TREE / "tests" / file).read_text(encoding="utf-8"))
        defined = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
        reached, left = set(), [name]
        while left:  # its own words, those of the file's functions and fixtures, and constants
            reached.add(part := left.pop())
            words = {n.id for n in ast.walk(defined[part]) if isinstance(n, ast.Name)}
            words |= {argument.arg for argument in defined[part].args.args}
            left += (words & defined.keys()) - reached
        constants = [node for node in module.body if isinstance(node, ast.Assign)]
        texts = [n.value for part in [*(defined[p] for p in reached), *constants]
                 for n in ast.walk(part) if isinstance(n, ast.Constant)]  # fmt: skip
        assert any(str(text).endswith(page) for text in texts), f"{named} does not read {page}"
