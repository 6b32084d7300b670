#!/usr/bin/env bash
# House style: clang-format and clang-tidy over the C++ files, the include law, no stale page.
# usage: tools/check_style.sh [--fix]
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(--dry-run -Werror)
[[ ${1:-} == --fix ]] && mode=(-i)

folders=()
for folder in include src cli python tests bench fuzz; do
    [[ -d $folder ]] && folders+=("$folder")
done
find "${folders[@]}" -type f -regex '.*\.[hc]\(pp\)?' -print0 |
    xargs -0 -r -n 16 -P "$(nproc)" clang-format-19 "${mode[@]}"

python3 tools/include_law.py --self-test
python3 tools/include_law.py
python3 tools/dashboard_stamp.py
tools/clang_tidy.sh
