"""The commands of doc/frameworks/folders.md, run as they stand there."""

import os
import re
import shutil
import subprocess

from run_wisp import BINARY, PATIENCE, ROOT, environment

PAGE = ROOT / "doc" / "frameworks" / "folders.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_commands_run_in_the_order_of_the_page(tmp_path):
    shutil.copytree(ROOT / "tests" / "golden" / "folders" / "prime_rl" / "broadcasts", tmp_path / "out")
    commands = "\n".join(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    assert commands.count("wisp ") >= 5
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "wisp").symlink_to(BINARY)
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE,
        env=environment({"PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}), check=False)
    assert done.returncode == 0, done.stderr
    assert "step 12\n" in done.stdout and "model-00001-of-00002.safetensors" in done.stdout
    assert (tmp_path / "models" / "current" / "STABLE").exists()
