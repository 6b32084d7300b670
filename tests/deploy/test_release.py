"""`make release`: made twice, in two places, it is the same bytes; the source package builds without git."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=3500, **options)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def release(source, place, **environment):
    run("git", "clone", "--quiet", source, place)
    (place / "build").mkdir()
    # Pinned by hashes, so any will do; made anew where this tree has none.
    for venv in (TREE / "build").glob("wheel-venv-*"):
        (place / "build" / venv.name).symlink_to(venv)
    run(place / "tools/release.sh", env={**os.environ, **environment}, cwd=place)
    return place / "build/dist"


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return release(TREE, tmp_path_factory.mktemp("releases") / "here")


@pytest.fixture(scope="module")
def second(first, tmp_path_factory):
    # Whatever the machine's habits are.
    before = os.umask(0o077)
    try:
        return release(first.parents[1], tmp_path_factory.mktemp("another") / "place/for/it", TZ="Asia/Tokyo",
                       LC_ALL="C.UTF-8")
    finally:
        os.umask(before)


def test_a_release_made_twice_is_the_same_bytes(first, second):
    sums, again = (dict(reversed(line.split("  ")) for line in (place / "SHA256SUMS").read_text().splitlines())
                   for place in (first, second))
    assert sums == again
    kinds = "".join(sorted(sums))
    for part in (r"wisp_sync-.*\.whl", r"wisp_sync-.*\.tar\.gz", r"wisp_.*\.deb", r"libwisp-dev_.*\.deb",
                 r"container\.tar\.gz", r"\.cdx\.json"):
        assert re.search(part, kinds), part
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=first)


def test_the_sbom_is_cyclonedx_and_names_what_is_inside(first):
    validation = pytest.importorskip("cyclonedx.validation.json")
    from cyclonedx.schema import SchemaVersion

    (file,) = first.glob("wisp-*.cdx.json")
    fault = validation.JsonStrictValidator(SchemaVersion.V1_5).validate_str(file.read_text())
    assert fault is None, fault
    bom = json.loads(file.read_text())
    parts = {part["bom-ref"]: part for part in bom["components"]}
    assert len(parts) == len(bom["components"]) and all(part["purl"] == ref for ref, part in parts.items())
    (whole,) = bom["dependencies"]
    assert whole["ref"] == bom["metadata"]["component"]["bom-ref"] and set(whole["dependsOn"]) == parts.keys()
    names = {part["name"] for part in parts.values()}
    assert {"libc6", "libssl3", "libcurl4", "libhwy-dev", "nlohmann-json3-dev", "nanobind"} <= names, names


def test_entries_that_no_release_has_are_refused(tmp_path):
    place = tmp_path / "clone"
    run("git", "clone", "--quiet", "--depth", "1", f"file://{TREE}", place)
    text = (place / "CHANGELOG.md").read_text()
    (place / "CHANGELOG.md").write_text(text.replace("\n## [", "\n## [Unreleased]\n\n- More.\n\n## [", 1))
    done = subprocess.run([place / "tools/release.sh"], capture_output=True, text=True)
    assert done.returncode == 1 and "[Unreleased]" in done.stderr


def test_the_source_package_builds_without_git(first, tmp_path):
    (package,) = first.glob("wisp_sync-*.tar.gz")
    run("tar", "-C", tmp_path, "-xf", package)
    (source,) = tmp_path.glob("wisp_sync-*")
    without = tmp_path / "bin"
    without.mkdir()
    (without / "git").write_text("#!/bin/sh\necho no git here >&2\nexit 1\n")
    (without / "git").chmod(0o755)
    venv = max(first.parent.glob("wheel-venv-*"))
    run(venv / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps",
        "--no-build-isolation", "--wheel-dir", tmp_path, source,
        env={**os.environ, "PATH": f"{without}:{os.environ['PATH']}"})
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "unpacked", "zip")
    (command,) = (tmp_path / "unpacked").glob("*.data/scripts/wisp")
    command.chmod(0o755)
    commit = run("git", "-C", first, "rev-parse", "HEAD")[:12]
    assert commit in run(command, "--version")
