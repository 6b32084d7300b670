#!/usr/bin/env bash
# House style: clang-format over the C++ files, the include law, ruff and mypy over the Python files, no
# stale page.
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

tools=build/venv/bin
if [[ ! -x $tools/ruff || ! -x $tools/mypy ]]; then
    echo "check_style.sh: ruff and mypy are missing in build/venv; run tools/setup.sh test" >&2
    exit 1
fi
if [[ ${1:-} == --fix ]]; then
    "$tools/ruff" check --quiet --fix
    "$tools/ruff" format --quiet python
fi
"$tools/ruff" check --quiet
"$tools/ruff" format --quiet --check python
"$tools/mypy" --no-error-summary
