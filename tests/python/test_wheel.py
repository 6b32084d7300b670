"""`make wheel`: a wheel for every Python that is here, which needs nothing but numpy."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import pytest
from conftest import TREE

pytestmark = pytest.mark.slow
DIST = TREE / "build/dist"
MACHINE = platform.machine()
README = (TREE / "README.md").read_text()
# Of the stable ABI although they begin like what is private: the macros of the limited API use them.
STABLE_PRIVATE = {
    "_Py_Dealloc", "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct", "_Py_NotImplementedStruct",
    "_Py_EllipsisObject", "_PyWeakref_RefType", "_PyObject_GC_New", "_PyObject_New", "_Py_IncRef", "_Py_DecRef",
}


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=1700, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean_environment():
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}


@pytest.fixture(scope="module")
def wheels():
    """Built anew; WISP_WHEELS=build/dist takes those that are there."""
    if not os.environ.get("WISP_WHEELS"):
        run(TREE / "tools/wheel.sh", env=clean_environment())
    found = {re.search(r"-(cp\d+-\w+)-", w.name)[1]: w for w in DIST.glob(f"wisp_sync-*_{MACHINE}.whl")}
    assert found
    return found


def module_of(wheel, folder):
    archive = zipfile.ZipFile(wheel)
    (name,) = [n for n in archive.namelist() if re.match(r"wisp/_native\.[^/]*\.so$", n)]
    return Path(archive.extract(name, folder))


def test_tags_say_what_the_modules_are(wheels, tmp_path):
    for tag, wheel in wheels.items():
        assert tag in ("cp310-cp310", "cp311-cp311", "cp312-abi3")
        assert re.search(rf"-manylinux_2_\d\d_{MACHINE}\.whl$", wheel.name), wheel
        module = module_of(wheel, tmp_path / tag)
        undefined = {line.split()[-1].partition("@")[0] for line in run("nm", "-D", "-u", module).splitlines()}
        private = {name for name in undefined if name.startswith("_Py")}
        if tag.endswith("abi3"):
            assert module.name == "_native.abi3.so"
            assert private <= STABLE_PRIVATE, private - STABLE_PRIVATE
        else:
            assert f"cpython-{tag[2:5]}" in module.name


def test_wheels_run_with_the_oldest_glibc_that_this_machine_can_build_for(wheels):
    """Debian 12's own libraries ask for 2.34. RHEL 9 has that, with the libstdc++ of GCC 11."""
    if 'VERSION_ID="12"' not in Path("/etc/os-release").read_text():
        pytest.skip("not Debian 12")
    for wheel in wheels.values():
        assert wheel.name.endswith(f"-manylinux_2_34_{MACHINE}.whl"), wheel


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


@pytest.mark.parametrize("interpreter, tag", [*interpreters()])
def test_a_clean_environment_publishes_and_follows(wheels, interpreter, tag, tmp_path):
    if tag not in wheels:
        pytest.skip(f"no wheel {tag} could be built here")
    clean = clean_environment()
    run(interpreter, "-m", "venv", tmp_path / "venv", env=clean)
    pip = (tmp_path / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
    run(*pip, "numpy", env=clean)
    # From nowhere else: an index may hold something of the same name.
    run(*pip, "--no-index", "--find-links", DIST, "wisp-sync", env=clean)
    run(tmp_path / "venv/bin/python", TREE / "tests/python/first_run.py", cwd=tmp_path, env=clean)
    command = tmp_path / "venv/bin/wisp"
    assert re.match(r"wisp \d+\.\d+\.\d+", run(command, "--version", env=clean))
    assert "step 1" in run(command, "status", "bucket/run", cwd=tmp_path, env=clean)
    page = run(command, "report", "bucket/run", "-o", tmp_path / "page.html", cwd=tmp_path, env=clean)
    assert page is not None and "<html" in (tmp_path / "page.html").read_text()[:2000].lower()


@pytest.fixture(scope="module")
def beside_torch(wheels, tmp_path_factory):
    """An environment with the wheel in it, which finds torch and vLLM in the one that runs these tests."""
    pytest.importorskip("torch")
    tag = "cp3{0}-cp3{0}".format(sys.version_info[1]) if sys.version_info < (3, 12) else "cp312-abi3"
    if tag not in wheels:
        pytest.skip(f"no wheel {tag} could be built here")
    venv = tmp_path_factory.mktemp("beside") / "venv"
    run(sys._base_executable, "-m", "venv", venv, env=clean_environment())
    run(venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", wheels[tag],
        env=clean_environment())
    (packages,) = venv.glob("lib/python3*/site-packages")
    lender = sysconfig.get_paths()["purelib"]
    (packages / "lender.pth").write_text(f"import site; site.addsitedir({lender!r})\n")
    program = venv / "bin/vllm"
    # Its processes import it again.
    program.write_text(f"#!{venv}/bin/python\nfrom vllm.entrypoints.cli.main import main\n"
                       "if __name__ == '__main__':\n    main()\n")
    program.chmod(0o755)
    return venv


def test_the_example_of_the_readme_runs_from_the_wheel(beside_torch, tmp_path):
    example = re.search(r"```python torch\n(.*?)```", README, re.S)[1]
    example += f"\nassert wisp.__file__.startswith({str(beside_torch)!r}), wisp.__file__\n"
    run(beside_torch / "bin/python", "-c", example, cwd=tmp_path, env=clean_environment())


def test_a_vllm_of_the_wheel_follows_with_the_flags_of_the_readme(beside_torch, tmp_path, monkeypatch):
    pytest.importorskip("vllm")
    from byte_model import save_tiny_qwen3
    from safetensors.torch import load_file, save_file
    from vllm_server import Server

    address = tmp_path / "bucket/run"
    model = save_tiny_qwen3(tmp_path / "policy")
    weights = load_file(model / "model.safetensors")

    def publish(step):
        for tensor in weights.values():
            tensor.view(-1)[step::97] *= -1
        save_file(weights, tmp_path / "step.safetensors", {"format": "pt"})
        run(wisp, "publish", address, tmp_path / "step.safetensors", "--step", step, env=clean_environment())

    wisp = beside_torch / "bin/wisp"
    run(wisp, "init", address, env=clean_environment())
    publish(1)
    flags = re.search(r"\$ vllm serve policy (.*?)```", README, re.S)[1].replace("\\\n", " ")
    flags = [word.replace("s3://bucket/run", str(address)) for word in shlex.split(flags)]
    monkeypatch.setenv("PYTHONPATH", "")
    server = Server(model, tmp_path / "vllm.log", *flags,
                    on_host=lambda _, *words: (beside_torch / "bin/vllm", *words))
    try:
        for step in (1, 2):
            if step == 2:
                publish(step)
            status = server.call(f"/wisp/status?step={step}&wait=60")
            deadline = time.monotonic() + 120
            while server.call("/weight_info") != {"weight_version": str(step)}:
                assert time.monotonic() < deadline, (status, server.log()[-4000:])
                time.sleep(0.1)
            assert server.call("/wisp/verify", {})["differing"] == 0
    finally:
        server.close()


def test_pip_finds_in_the_compilers_cache_what_make_build_compiled(tmp_path):
    """All but the module itself: pip has nanobind in another folder each time."""
    if not shutil.which("ccache"):
        pytest.skip("ccache is not installed")
    tree = tmp_path / "tree"
    run("git", "clone", "--quiet", TREE, tree)
    run("cmake", "--preset", "release", "-D", "WISP_TESTS=OFF", cwd=tree)
    run("cmake", "--build", "--preset", "release", "--target", "wisp", cwd=tree)
    log = tmp_path / "statistics"
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--target",
        tmp_path / "installed", ".", cwd=tree, env={**clean_environment(), "CCACHE_STATSLOG": str(log)})
    results, source = {}, None
    for line in log.read_text().splitlines():
        if line.startswith("# "):
            source = line[2:]
        elif line.endswith(("_cache_hit", "cache_miss")) and not line.startswith(("local", "remote")):
            results[source] = line
    shared = {s: r for s, r in results.items() if not re.search(r"wisp_native|python/native|nanobind", s)}
    assert len(shared) > 80, results
    missed = [s for s, r in shared.items() if r == "cache_miss"]
    assert not missed, missed
