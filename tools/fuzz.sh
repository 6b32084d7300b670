#!/usr/bin/env bash
# Runs every fuzz target (build/fuzz/bin/fuzz_*) for SECONDS each, FUZZ_JOBS (one per core) at a time.
# Seeds: fuzz/corpus/<target>/. Kept between runs: build/fuzz-corpus/<target>/.
# Crashes: build/fuzz-crashes/.
# usage: tools/fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."

run_one() {
    local target=$1 seconds=$2 name log seeds=()
    name=$(basename "$target")
    log=build/fuzz-logs/$name.log
    mkdir -p "build/fuzz-corpus/$name" build/fuzz-crashes build/fuzz-logs
    [[ -d fuzz/corpus/$name ]] && seeds=("fuzz/corpus/$name")
    if "$target" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/fuzz-crashes/$name-" \
        "build/fuzz-corpus/$name" "${seeds[@]}" >"$log" 2>&1; then
        echo "ok      $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs"
    else
        echo "FAILED  $name: see $log"
        tail -n 30 "$log"
        return 1
    fi
}
export -f run_one

shopt -s nullglob
targets=(build/fuzz/bin/fuzz_*)
((${#targets[@]})) || { echo "no fuzz targets in build/fuzz/bin" >&2; exit 1; }
export UBSAN_OPTIONS=print_stacktrace=1
printf '%s\0' "${targets[@]}" |
    xargs -0 -P "${FUZZ_JOBS:-$(nproc)}" -I{} bash -c 'run_one "$1" "$2"' _ {} "${1:-600}"
