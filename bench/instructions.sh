#!/usr/bin/env bash
# Instructions per element, counted by callgrind: they do not depend on what else the machine does.
# callgrind knows no AVX-512, so this is the AVX2 kernel. The difference between five rounds and one
# leaves out what is done once; each round runs on one thread and again on two.
set -euo pipefail
cd "$(dirname "$0")/.."
json=$1
elements=$((1 << 22))
command -v valgrind >/dev/null || { echo "valgrind is not installed: skipped"; exit 0; }

count() {  # work, rounds
    valgrind --tool=callgrind --callgrind-out-file=/dev/null build/release/bin/wisp_speed \
        "$elements" "$2" - "$1" 2>&1 >/dev/null | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}
{
    echo '{'
    separator=
    for work in 'compare' 'detect + encode' 'detect + digest + encode' 'decode + prove + apply'; do
        per=$(awk -v a="$(count "$work" 1)" -v b="$(count "$work" 5)" -v n="$elements" \
            'BEGIN { printf "%.2f", (b - a) / (4 * 2 * n) }')
        printf '%-28s %s\n' "$work" "$per" >&2
        printf '%s  "%s": %s' "$separator" "$work" "$per"
        separator=$',\n'
    done
    printf '\n}\n'
} >"$json"
