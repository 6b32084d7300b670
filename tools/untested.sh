#!/usr/bin/env bash
# Says aloud what the tests left out or could not try on this machine, and how to change that.
# usage: tools/untested.sh [-LE LABEL]     what ctest was told to leave out
set -euo pipefail
cd "$(dirname "$0")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/wisp-tools
missing() { echo "NOT TESTED: $* (make test-all)"; }

# What pytest left out of tests that passed; first, since every later call of ctest begins a new log.
for preset in release asan tsan; do
    log=build/$preset/Testing/Temporary/LastTest.log
    [[ ! -f $log ]] || sed -nE 's/^SKIPPED \[[0-9]+\] //p' "$log" | sort -u |
        while read -r skipped; do echo "NOT TESTED ($preset): $skipped"; done
done
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
