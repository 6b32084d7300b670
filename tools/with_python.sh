#!/usr/bin/env bash
# Runs an interpreter of an environment that `make test-all` makes, or says that it is not there.
# usage: tools/with_python.sh PYTHON [ARGUMENTS...]
set -euo pipefail
if [[ ! -x $1 ]]; then
    echo "$1: there is no such environment; make test-all makes it"
    exit 0
fi
exec "$@"
