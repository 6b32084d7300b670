#!/usr/bin/env bash
# Writes the types of the extension module, as the release build has it, to python/wisp/_native.pyi.
# usage: tools/python_stub.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."

python=build/venv/bin/python
stub=${1:-python/wisp/_native.pyi}
"$python" -m nanobind.stubgen --quiet --exclude-values \
    -i build/release/python/wisp -m _native -o "$stub"
# nanobind leaves open what a path consists of.
sed -i 's/\bos\.PathLike\b/os.PathLike[str]/g' "$stub"
