"""What `import wisp` gives: submodules by themselves, one name per thing, exceptions by PEP 8."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest
from conftest import TREE

import wisp

#: Each submodule that documents name, and what it cannot be imported without.
SUBMODULES = {
    "adapters": None,
    "axolotl": "axolotl",
    "engine": None,
    "folders": None,
    "hf": "transformers",
    "ms_swift": "transformers",
    "nemo_rl": "nemo_rl",
    "plot": None,
    "quantize": "torch",
    "ray": "ray",
    "sglang": "torch",
    "sharded": "torch",
    "skyrl": None,
    "slime": None,
    "stores": None,
    "trl": None,
    "verl": "verl",
    "vllm": None,
}


@pytest.mark.parametrize("name", SUBMODULES)
def test_a_submodule_imports_by_itself(name: str) -> None:
    need = SUBMODULES[name]
    if need is not None and importlib.util.find_spec(need) is None:
        pytest.skip(f"{need} is not installed")
    code = f"import wisp; print(wisp.{name}.__name__)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.stdout.strip() == f"wisp.{name}", ran.stderr


def test_every_submodule_that_the_documents_name_is_one_of_them() -> None:
    pages = [TREE / "README.md", *(TREE / "doc").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"\bwisp\.([a-z]\w*)\.\w", text))
    for name in sorted(named):
        spec = importlib.util.find_spec(f"wisp.{name}")
        assert spec is None or name in SUBMODULES, name


def test_importing_wisp_imports_no_framework() -> None:
    code = "import sys, wisp; print({'torch', 'transformers', 'vllm', 'trl'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Invalid'"):
        _ = wisp.Invalid
    assert {"trl", "Publisher", "ShardedPublisher"} <= set(dir(wisp))


def test_every_exception_ends_in_error() -> None:
    raised = [v for v in vars(wisp.errors).values() if isinstance(v, type)]
    errors = [e for e in raised if issubclass(e, Exception)]
    assert len(errors) == 16 and all(e.__name__.endswith("Error") for e in errors)
    assert all(getattr(wisp, e.__name__) is e for e in errors)
