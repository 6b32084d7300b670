#!/usr/bin/env bash
# Prints every figure as a table and writes bench/results/*.json: sizes against the peers, speed
# against a plain compare of the same memory, instructions per element, anonymous memory, and what
# the bucket costs.
set -euo pipefail
cd "$(dirname "$0")/.."
out=bench/results
mkdir -p "$out"
grep -m1 'model name' /proc/cpuinfo || true
printf '\nSizes: bits per changed element, whole files\n'
build/bench-venv/bin/python bench/peers.py --wisp build/wisp --sparser build/release/bin/wisp_make_pair --json "$out/sizes.json"
printf '\nSpeed: processor time against a plain vectorised compare of the same arrays\n'
build/release/bin/wisp_speed "${WISP_BENCH_ELEMENTS:-600000000}" "${WISP_BENCH_ROUNDS:-9}" "$out/speed.json"
printf '\nDensities: one thread, both codecs, from nothing to everything changed\n'
build/release/bin/wisp_density "${WISP_BENCH_DENSITY_ELEMENTS:-60000000}" 5 "$out/density.json"
printf '\nThe whole curve: blocked, committed and bytes of a step whatever share of it changed\n'
PYTHONPATH=build/release/python build/torch-venv/bin/python bench/density_curve.py
printf '\nSlices: what a host of an engine that spans two fetches, against its share\n'
build/release/bin/wisp_slices "$out/slices.json"
printf '\nInstructions per element\n'
bench/instructions.sh "$out/instructions.json"
printf '\nAnonymous memory on a pair of about %s GB\n' "${WISP_BENCH_PAIR_GB:-4}"
build/bench-venv/bin/python bench/memory.py --wisp build/wisp --gigabytes "${WISP_BENCH_PAIR_GB:-4}" --json "$out/memory.json"
printf '\nThe bucket: publish and follow through a folder, requests of 16 followers, a late joiner\n'
pair=$(mktemp -d)
trap 'rm -rf "$pair"' EXIT
build/release/bin/wisp_make_pair "$pair" "${WISP_BENCH_LAYERS:-28}"
{
    build/release/bin/wisp_bucket publish "$pair"
    build/release/bin/wisp_bucket followers
    build/release/bin/wisp_bucket joiner
    build/release/bin/wisp_bucket growth
} | tee "$out/bucket.jsonl"
