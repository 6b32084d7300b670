#!/usr/bin/env bash
# The main job, end to end, on this machine: examples/wordle/demo.py with the tool and module just built.
# Environment: MODEL, SERVERS, BUCKET, MINUTES, RATE, ENGINE (built-in or vllm), PORT, WISP_DEMO_DIR.
set -euo pipefail
cd "$(dirname "$0")/.."

engine=${ENGINE:-built-in}
venv=build/demo-venv
[[ $engine != vllm ]] || venv=build/torch-venv

arguments=(--engine "$engine" --wisp build/wisp)
# takes OPTION VALUE: hands the option on when there is a value.
takes() { [[ -z $2 ]] || arguments+=("$1" "$2"); }
takes --model "${MODEL:-}"
takes --servers "${SERVERS:-}"
takes --bucket "${BUCKET:-}"
takes --minutes "${MINUTES:-}"
takes --learning-rate "${RATE:-}"
takes --port "${PORT:-}"

export PYTHONPATH=$PWD/build/release/python PYTHONUNBUFFERED=1
exec "$venv/bin/python" examples/wordle/demo.py "${WISP_DEMO_DIR:-build/demo}" "${arguments[@]}"
