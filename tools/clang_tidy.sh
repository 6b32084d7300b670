#!/usr/bin/env bash
# clang-tidy, with the few checks of .clang-tidy: on the sources that a change touches, or on all.
# A change is what differs from the main branch, or from the last commit but one on that branch.
# usage: tools/clang_tidy.sh [--all]
set -euo pipefail
cd "$(dirname "$0")/.."

# A source takes some six seconds of a core.
most=10
folders=(src cli)

changed() {
    local base main
    for main in origin/HEAD origin/main main; do
        base=$(git merge-base HEAD "$main" 2>/dev/null) && break
    done
    if [[ -z $base || $base == "$(git rev-parse HEAD)" ]]; then
        base=$(git rev-parse -q --verify HEAD~1) || return 0
    fi
    { git diff --name-only --diff-filter=AMR "$base" -- "${folders[@]}"
      git ls-files --others --exclude-standard -- "${folders[@]}"; } |
        { grep '\.cpp$' || true; } | sort -u
}

if [[ ${1:-} == --all ]]; then
    mapfile -t sources < <(find "${folders[@]}" -name '*.cpp' | sort)
else
    mapfile -t sources < <(changed)
    if ((${#sources[@]} > most)); then
        echo "clang-tidy: $most of ${#sources[@]} sources; for all: tools/clang_tidy.sh --all" >&2
        sources=("${sources[@]:0:most}")
    fi
fi
((${#sources[@]})) || exit 0
cmake --preset release --log-level=WARNING >/dev/null
# The commands are GCC's, which knows warnings that clang does not.
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy-19 -p build/release --quiet \
    --extra-arg=-w --extra-arg=-Wno-error --extra-arg=-Qunused-arguments 2>&1 |
    { grep -v ' warnings generated\.$' || true; }
