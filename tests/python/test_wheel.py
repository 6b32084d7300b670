"""`make wheel`: a wheel for every Python that is here, which needs nothing but numpy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import TREE

pytestmark = pytest.mark.slow
DIST = TREE / "build/dist"
# Of the stable ABI although they begin like what is private: the macros of the limited API use them.
STABLE_PRIVATE = {
    "_Py_Dealloc", "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct", "_Py_NotImplementedStruct",
    "_Py_EllipsisObject", "_PyWeakref_RefType", "_PyObject_GC_New", "_PyObject_New", "_Py_IncRef", "_Py_DecRef",
}


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=1700, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels():
    """Built anew; WISP_WHEELS=build/dist takes those that are there."""
    if not os.environ.get("WISP_WHEELS"):
        run(TREE / "tools/wheel.sh", env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    found = {re.search(r"-(cp\d+-\w+)-", w.name)[1]: w for w in DIST.glob("wisp_sync-*.whl")}
    assert found
    return found


def module_of(wheel, folder):
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if re.match(r"wisp/_native\.[^/]*\.so$", n)]
    return Path(archive.extract(name, folder))


def test_tags_say_what_the_modules_are(wheels, tmp_path):
    for tag, wheel in wheels.items():
        assert tag in ("cp310-cp310", "cp311-cp311", "cp312-abi3")
        assert re.search(r"-manylinux_2_\d\d_x86_64\.whl$|-manylinux_2_\d\d_aarch64\.whl$", wheel.name), wheel
        module = module_of(wheel, tmp_path / tag)
        undefined = {line.split()[-1].partition("@")[0] for line in run("nm", "-D", "-u", module).splitlines()}
        private = {name for name in undefined if name.startswith("_Py")}
        if tag.endswith("abi3"):
            assert module.name == "_native.abi3.so"
            assert private <= STABLE_PRIVATE, private - STABLE_PRIVATE
        else:
            assert f"cpython-{tag[2:5]}" in module.name


def test_wheels_hold_module_types_command_and_page_and_are_small(wheels):
    for wheel in wheels.values():
        assert wheel.stat().st_size <= 15e6, wheel
        names = zipfile.ZipFile(wheel).namelist()
        assert {"wisp/py.typed", "wisp/_native.pyi"} <= set(names)
        assert [n for n in names if n.endswith("scripts/wisp")]
        assert not [n for n in names if n.startswith(("tests", "src", "include")) or n.endswith((".a", ".hpp"))]
        (metadata,) = [n for n in names if n.endswith("METADATA")]
        text = zipfile.ZipFile(wheel).read(metadata).decode()
        for extra in ("torch", "vllm", "trl", "hub", "ray"):
            assert f"Provides-Extra: {extra}\n" in text


def interpreters():
    """Every Python that is to be had here, with the wheel that pip should choose."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(10, 15):
        places = [Path(f"/usr/bin/python3.{minor}"), *sorted(versions.glob(f"3.{minor}.*/bin/python3.{minor}"))]
        place = next((p for p in places if p.exists()), None)
        if place:
            yield pytest.param(place, f"cp3{minor}-cp3{minor}" if minor < 12 else "cp312-abi3", id=place.name)


@pytest.mark.parametrize("interpreter, tag", interpreters())
def test_a_clean_environment_publishes_and_follows(wheels, interpreter, tag, tmp_path):
    if tag not in wheels:
        pytest.skip(f"no wheel {tag} could be built here")
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    run(interpreter, "-m", "venv", tmp_path / "venv", env=clean)
    run(tmp_path / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
        "--find-links", DIST, "wisp-sync", env=clean)
    run(tmp_path / "venv/bin/python", TREE / "tests/python/first_run.py", cwd=tmp_path, env=clean)
    command = tmp_path / "venv/bin/wisp"
    assert re.match(r"wisp \d+\.\d+\.\d+", run(command, "--version", env=clean))
    assert "step 1" in run(command, "status", "bucket/run", cwd=tmp_path, env=clean)
    page = run(command, "report", "bucket/run", "-o", tmp_path / "page.html", cwd=tmp_path, env=clean)
    assert page is not None and "<html" in (tmp_path / "page.html").read_text()[:2000].lower()


def test_the_example_of_the_readme_runs_from_the_wheel(wheels, tmp_path):
    pytest.importorskip("torch")
    tag = "cp3{0}-cp3{0}".format(sys.version_info[1]) if sys.version_info < (3, 12) else "cp312-abi3"
    if tag not in wheels:
        pytest.skip(f"no wheel {tag} could be built here")
    place = tmp_path / "installed"
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--target",
        place, wheels[tag])
    example = re.search(r"```python torch\n(.*?)```", (TREE / "README.md").read_text(), re.S)[1]
    example += f"\nassert wisp.__file__.startswith({str(place)!r}), wisp.__file__\n"
    run(sys.executable, "-c", example, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(place)})
