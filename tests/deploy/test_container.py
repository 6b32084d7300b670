"""The Containerfiles, built by buildah. Their bases are made from a bare Debian: no registry is asked."""

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
# What debian:12-slim leaves out of a bare Debian.
NOT_SLIM = ("./usr/share/doc/", "./usr/share/locale/", "./usr/share/man/", "./usr/share/info/",
            "./var/lib/apt/lists/", "./var/cache/", "./var/log/")

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("buildah"),
                                reason="images need root and buildah")


class Images:
    """A store of images that goes with the test."""

    def __init__(self, folder):
        self.where = ["--root", folder / "storage", "--runroot", folder / "run", "--storage-driver", "vfs"]

    def __call__(self, verb, *words):
        command = ["buildah", *self.where, verb, *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1700)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout.strip()

    def build(self, name, file, context, **arguments):
        given = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
        ccache = Path(os.environ.get("CCACHE_DIR", CACHE / "ccache"))
        ccache.mkdir(parents=True, exist_ok=True)
        self("build", "--isolation", "chroot", "--network", "host", "--format", "oci", "--tag", name,
             "--volume", f"{ccache}:/root/.cache/ccache", "--file", file, *given, context)

    def run(self, container, *command):
        return self("run", "--isolation", "chroot", container, "--", *command)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    bare = CACHE / "wisp" / f"bookworm-minbase-{architecture()}.tar"
    if not bare.exists():
        pytest.skip(f"there is no {bare}; tools/fresh_machine.sh makes it")
    with tarfile.open(bare) as whole, tarfile.open(folder / "slim.tar", "w") as slim:
        for member in whole:
            if not member.name.startswith(NOT_SLIM):
                slim.addfile(member, whole.extractfile(member) if member.isreg() else None)
    images = Images(folder)
    container = images("from", "scratch")
    images("add", container, folder / "slim.tar", "/")
    (folder / "slim.tar").unlink()
    images("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
    images("commit", "--rm", container, "localhost/debian:12-slim")
    yield images
    images("rm", "--all")
    images("rmi", "--all", "--force")


def architecture():
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """Of a release: what it leaves out, no step may need."""
    folder = tmp_path_factory.mktemp("context")
    packed = subprocess.run([TREE / "tools/container_context.sh"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-C", folder, "-xzf", "-"], input=packed, check=True)
    (context,) = folder.glob("wisp-*")
    return context


def test_the_image_of_the_command_is_small_and_not_root(images, context):
    commit = subprocess.run(["git", "-C", TREE, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    images.build("localhost/wisp", context / "deploy/container/Containerfile", context,
                 BASE="localhost/debian:12-slim")
    (image,) = json.loads(images("images", "--json", "localhost/wisp"))
    megabytes = float(image["size"].split()[0]) * {"MB": 1, "GB": 1000}[image["size"].split()[1]]
    print(f"image: {megabytes} MB")
    assert megabytes <= 150
    config = json.loads(images("inspect", "--type", "image", "localhost/wisp"))["OCIv1"]["config"]
    assert config["User"] == "10001" and config["Entrypoint"] == ["wisp"]
    container = images("from", "localhost/wisp")
    assert images.run(container, "id", "-u") == "10001"
    assert commit[:12] in images.run(container, "wisp", "--version")
    images.run(container, "sh", "-c", "test -w /models && wisp init /models/run && wisp status /models/run")
    assert "dashboard" in images.run(container, "wisp", "--help")
    assert images.run(container, "sh", "-c", "command -v g++ || echo none") == "none"
    images("rm", container)


def test_the_wheel_comes_into_vllms_image(images, tmp_path):
    """Its steps, on an image that is like vLLM's in what they touch: Python, pip, numpy, root."""
    if not list((TREE / "build/dist").glob("wisp_sync-*.whl")):
        pytest.skip("there is no wheel in build/dist; `make wheel` makes them")
    base = tmp_path / "Containerfile"
    base.write_text("FROM localhost/debian:12-slim\n"
                    "RUN apt-get update && apt-get install -y --no-install-recommends python3-pip python3-numpy && "
                    "rm -f /usr/lib/python3*/EXTERNALLY-MANAGED\n")
    images.build("localhost/python", base, tmp_path)
    images.build("localhost/vllm-wisp", TREE / "deploy/container/vllm.Containerfile", TREE / "build/dist",
                 VLLM="localhost/python")
    container = images("from", "localhost/vllm-wisp")
    images("add", container, TREE / "tests/python/first_run.py", "/root/first_run.py")
    images.run(container, "sh", "-c", "cd /root && python3 first_run.py && wisp status bucket/run")
    plugins = "from importlib.metadata import entry_points as e; print(*e(group='vllm.general_plugins'))"
    assert "wisp.vllm:register" in images.run(container, "python3", "-c", plugins)
    images("rm", container)
