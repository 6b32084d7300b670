#!/bin/sh
# What a machine makes of the recorded run: for each codec the hash of every delta, and of every state that comes
# out when it is applied. Two machines are the same, bit for bit, when they print the same lines.
# usage: encode_recorded.sh DATA COMMAND...     bench/data, and how wisp is called
set -eu
data=$(cd "$1" && pwd)
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
hash() { sha256sum "$1" | cut -c 1-64; }

cp "$data"/anchors/*.safetensors "$work/old"
for delta in "$data"/deltas/*.safetensors; do
    "$@" apply "$work/old" "$delta" -o "$work/new" -q
    for codec in compact swift gap plain; do
        "$@" diff "$work/old" "$work/new" -o "$work/delta" --codec "$codec" -q
        "$@" apply "$work/old" "$work/delta" -o "$work/again" -q
        cmp "$work/new" "$work/again"
        echo "$codec $(basename "$delta" .safetensors) $(hash "$work/delta") $(hash "$work/again")"
        rm "$work/delta" "$work/again"
    done
    mv "$work/new" "$work/old"
done
