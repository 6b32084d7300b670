"""Frameworks as they are installed. tests/python has the parts that these tests share with others."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).resolve().parents[2]
SHARED = str(TREE / "tests" / "python")
HERE = str(Path(__file__).parent)
sys.path[:0] = [SHARED, HERE]
# Ray's workers, and servers in them, import what this process does.
os.environ["PYTHONPATH"] = os.pathsep.join([SHARED, HERE, os.environ.get("PYTHONPATH", "")])

from vllm_server import ENVIRONMENT  # noqa: E402

os.environ.update(ENVIRONMENT)


def documented(page: str, index: int, **places: str) -> Any:
    """A YAML block of a page under doc/frameworks, with addresses of the test's in it."""
    from omegaconf import OmegaConf

    text = (TREE / "doc" / "frameworks" / page).read_text(encoding="utf-8")
    block = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[index]
    for old, new in places.items():
        block = block.replace(old.replace("__", "://").replace("_", "/"), new)
    return OmegaConf.create(block)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from byte_model import save_tiny_qwen3

    return save_tiny_qwen3(tmp_path_factory.mktemp("model"))


@pytest.fixture
def ray_session(tmp_path: Path) -> Iterator[Any]:
    """Ray on this machine, for one test."""
    import ray

    folder = tempfile.mkdtemp(prefix="wr-")  # sockets in it must have short names
    patiently(
        # The devices are counted only: verl's replicas ask for one, and then run on a CPU.
        lambda: ray.init("local", num_cpus=8, num_gpus=2, include_dashboard=False,
                         object_store_memory=100 << 20, log_to_driver=False, _temp_dir=folder)
    )  # fmt: skip
    yield ray
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def patiently(start: Callable[[], Any], tries: int = 5) -> Any:
    """Ray gives a node 30 seconds to start, whatever else the machine does."""
    import ray

    for left in reversed(range(tries)):
        try:
            return start()
        except Exception:
            ray.shutdown()
            if not left:
                raise
