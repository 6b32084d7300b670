#!/usr/bin/env bash
# The main job, end to end: one RL step of a Qwen3-0.6B-shaped model as a delta, then a run followed.
# WISP_DEMO_LAYERS makes it smaller (28 needs 4 GB of disk), WISP_DEMO_DIR puts it elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
wisp=build/wisp
dir=${WISP_DEMO_DIR:-build/demo}
layers=${WISP_DEMO_LAYERS:-28}
mkdir -p "$dir"
trap 'rm -rf "$dir"/{old,new,rebuilt}.safetensors "$dir"/{run,baseline,replica,step_15.safetensors}' EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { printf '$ %s\n' "${*//$dir\//}"; "$@"; }

free=$(df --output=avail -B1 "$dir" | tail -1)
need=$((4 * 1000 * 1000 * 1000 * (layers + 10) / 38))
if [ "$free" -lt "$need" ]; then
    echo "the demo needs $((need / 1000000)) MB in $dir and finds $((free / 1000000)):" \
         "set WISP_DEMO_LAYERS=1 or WISP_DEMO_DIR" >&2
    exit 1
fi

say "1. A model before and after one optimizer step (Qwen3-0.6B's shape, $layers layers; AdamW on fp32 masters, lr 1e-6)"
SECONDS=0
build/release/bin/wisp_make_pair "$dir" "$layers"
echo "old and new: $(du -h --apparent-size "$dir/old.safetensors" | cut -f1) each, made in $SECONDS s"

say "2. What changed, as a file"
run $wisp diff "$dir/old.safetensors" "$dir/new.safetensors" -o "$dir/delta.safetensors" --step 42

say "3. What is in it"
run $wisp inspect "$dir/delta.safetensors"

say "4. On another machine, with only the old checkpoint and the delta"
run $wisp apply "$dir/old.safetensors" "$dir/delta.safetensors" -o "$dir/rebuilt.safetensors"
run cmp "$dir/rebuilt.safetensors" "$dir/new.safetensors"
echo "bit for bit the new checkpoint"

say "5. In place, crash-safe: the old checkpoint becomes the new one"
run $wisp apply "$dir/old.safetensors" "$dir/delta.safetensors" --in-place
run $wisp verify "$dir/old.safetensors" "$dir/new.safetensors"

say "6. What is there already is skipped, and a damaged base is refused before anything is written"
run $wisp apply "$dir/new.safetensors" "$dir/delta.safetensors" --in-place
middle=$(($(stat -c %s "$dir/new.safetensors") / 2))
printf 'x' | dd of="$dir/new.safetensors" bs=1 seek=$middle conv=notrunc status=none
if run $wisp apply "$dir/new.safetensors" "$dir/delta.safetensors" -o "$dir/rebuilt.safetensors"; then
    echo "a damaged base was accepted" >&2
    exit 1
fi
echo "(exit code as expected)"

say "7. Through a bucket, here a folder: two steps of a recorded RL run, published and followed"
recorded=bench/data
rm -rf "$dir"/{run,baseline,replica}
$wisp apply -q $recorded/anchors/step_000014.safetensors $recorded/deltas/step_000015.safetensors \
    -o "$dir/step_15.safetensors"
run $wisp init "$dir/run"
run $wisp publish "$dir/run" $recorded/anchors/step_000014.safetensors --step 14 \
    --baseline "$dir/baseline"
run $wisp publish "$dir/run" "$dir/step_15.safetensors" --step 15 --baseline "$dir/baseline"
run $wisp follow "$dir/run" --into "$dir/replica" --once
run cmp "$dir/replica/model.safetensors" "$dir/step_15.safetensors"
echo "bit for bit step 15"
run $wisp log "$dir/run"
run $wisp status "$dir/run"
say "Kept: $dir/delta.safetensors"
