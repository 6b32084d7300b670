#!/usr/bin/env python3
"""Whether dashboard/dist/index.html was built from the sources beside it: the page names their hash.

usage: tools/dashboard_stamp.py [FOLDER]     silent when it was; otherwise exit 1 and the cure
"""

import hashlib
import pathlib
import sys

CURE = "run 'make dashboard' and commit dashboard/dist/index.html"


def source_hash(folder: pathlib.Path) -> str:
    """As build.mjs computes it."""
    names = ["build.mjs", "index.html", "package-lock.json", "package.json", "tsconfig.json"]
    names += [f"src/{path.name}" for path in (folder / "src").iterdir()]
    total = hashlib.sha256()
    for name in sorted(names):
        data = (folder / name).read_bytes()
        total.update(f"{name} {len(data)}\n".encode())
        total.update(data)
    return total.hexdigest()


def main() -> int:
    root = pathlib.Path(__file__).resolve().parents[1]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "dashboard"
    page = folder / "dist/index.html"
    if page.is_file() and f"<!-- sources {source_hash(folder)} -->" in page.read_text():
        return 0
    print(f"{page}: not built from the sources beside it; {CURE}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
