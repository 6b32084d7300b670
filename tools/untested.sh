#!/usr/bin/env bash
# Says aloud what the tests left out or could not try on this machine, and how to change that.
# usage: tools/untested.sh [-LE LABEL]     what ctest was told to leave out
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/wisp-tools
missing() { echo "NOT TESTED: $* (make test-all)"; }

if [[ ${1:-} == -LE ]]; then
    count=0
    for preset in release asan; do
        count=$((count + $(ctest --preset "$preset" -N -L "$2" | sed -n 's/^Total Tests: //p')))
    done
    missing "$count tests labelled $2"
fi
[[ -x $cache/bin/local_cas_server-1.8.0 ]] ||
    missing "the Hugging Face Hub by its own API: Xet's test server is not built"
[[ -x build/node-venv/bin/node ]] ||
    missing "that npm builds the dashboard's page again byte for byte"
