#!/usr/bin/env bash
# Writes the types of the extension module, as the release build has it, to python/wisp/_native.pyi.
# usage: tools/python_stub.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."

python=build/venv/bin/python
"$python" -m nanobind.stubgen --quiet --exclude-values \
    -i build/release/python/wisp -m _native -o "${1:-python/wisp/_native.pyi}"
