#!/usr/bin/env bash
# The Python module for the interpreter of build/frameworks-venv, into build/frameworks/python; and, with
# arguments, pytest there. Says so, and succeeds, where there is no such environment.
# usage: tools/frameworks.sh [PYTEST ARGUMENTS...]
set -euo pipefail
cd "$(dirname "$0")/.."

python=$PWD/build/frameworks-venv/bin/python
if [[ ! -x $python ]]; then
    echo "frameworks: the environment is missing (build/frameworks-venv, of make test-all)"
    exit 0
fi
if (($# == 0)); then
    cmake --preset release -B build/frameworks -DPython_EXECUTABLE="$python" \
        --log-level=WARNING >/dev/null
    cmake --build build/frameworks -j "${JOBS:-$(nproc)}" --target wisp_native
    exit
fi
export PYTHONPATH=$PWD/build/frameworks/python PYTHONDONTWRITEBYTECODE=1
# Where a machine has no accelerator, Ray and vLLM are told so, and nobody is counted.
export RAY_USAGE_STATS_ENABLED=0 RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 VLLM_NO_USAGE_STATS=1
# On two cores that others use too: no workers ahead of need, and patience with those that start.
export RAY_prestart_worker_first_driver=0 RAY_worker_register_timeout_seconds=600 RAY_AUTH_MODE=disabled
exec "$python" -m pytest -q "$@"
