"""The page in the tree is the one that its sources make."""

import hashlib
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "dashboard"
NODE = Path(sys.prefix) / "bin/node"
CURE = "run 'npm ci && npm run build' in dashboard/ and commit dist/index.html"


def test_its_stamp_is_that_of_the_sources():
    names = sorted(["build.mjs", "index.html", "package-lock.json", "package.json", "tsconfig.json",
                    *(f"src/{path.name}" for path in (FOLDER / "src").iterdir())])
    total = hashlib.sha256()
    for name in names:
        data = (FOLDER / name).read_bytes()
        total.update(f"{name} {len(data)}\n".encode())
        total.update(data)
    assert f"<!-- sources {total.hexdigest()} -->" in (FOLDER / "dist/index.html").read_text(), CURE


def test_building_it_again_gives_the_same(tmp_path):
    def node(*arguments):
        return subprocess.run([NODE, *arguments], cwd=FOLDER, check=True, capture_output=True)

    node("node_modules/typescript/bin/tsc", "--noEmit")
    node("build.mjs", tmp_path / "index.html")
    assert (tmp_path / "index.html").read_bytes() == (FOLDER / "dist/index.html").read_bytes(), CURE
