#!/usr/bin/env bash
# Runs ctest on each preset, whatever the others said, and closes with what each failure printed and
# one line of totals: a log that is cut from the front still says what is wrong.
# usage: tools/run_tests.sh "PRESET..." [ctest options]
set -uo pipefail
cd "$(dirname "$0")/.." || exit

presets=$1
shift
total=0 failed=0 status=0
for preset in $presets; do
    log=build/$preset/ctest.log
    rm -f "build/$preset/Testing/Temporary/LastTestsFailed.log"
    echo "== tests: $preset"
    ctest --preset "$preset" "$@" 2>&1 | tee "$log" || status=1
    read -r bad all < <(sed -nE \
        's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+).*/\1 \2/p' "$log") ||
        { bad=0 all=0 status=1; }
    total=$((total + all)) failed=$((failed + bad))
done
((failed == 0)) || status=1

for preset in $presets; do
    failures=build/$preset/Testing/Temporary/LastTestsFailed.log
    [[ $status != 0 && -s $failures ]] || continue
    while IFS=: read -r number name; do
        echo "== failed: $name ($preset); the end of what it printed:"
        sed -nE "/^ *[0-9]+\/[0-9]+ Test +#$number: /,/^ *(Start +[0-9]+:|[0-9]+% tests passed)/p" \
            "build/$preset/ctest.log" | tail -n 60 | cut -c -400
    done <"$failures"
done
echo "$((total - failed)) passed, $failed failed"
exit $status
