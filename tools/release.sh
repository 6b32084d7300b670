#!/usr/bin/env bash
# Makes a release of HEAD in build/dist: wheels, source package, Debian packages, the context of the
# container image, an SBOM and SHA256SUMS. Everything is built from git's archive of the commit, outside any
# repository, with the commit's time: made twice, also elsewhere, it is the same bytes.
# usage: tools/release.sh [INTERPRETER...]     which Pythons get a wheel; those of the machine by default
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${JOBS:-$(nproc)}
version=$(sed -nE 's/^project\(wisp VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
unset "${!LC_@}"
# The language too: messages of the compiler in another one are other entries in its cache.
export SOURCE_DATE_EPOCH TZ=UTC LANG=C.UTF-8
umask 022
out=$PWD/build/dist
tree=$PWD/build/release-tree/wisp-$version

say() { echo "release: $*" >&2; }

[[ -z $(git status --porcelain) ]] || say "note: only what is committed is released"
grep -q "^## \[$version\]" CHANGELOG.md || { say "CHANGELOG.md has no section [$version]"; exit 1; }
unreleased=$(sed -n '/^## \[Unreleased\]/,/^## \[[0-9]/{/^- /p}' CHANGELOG.md)
[[ ! $unreleased ]] ||
    { say "CHANGELOG.md has entries under [Unreleased]; they belong under [$version]"; exit 1; }
rm -rf "$out" build/release-tree
mkdir -p "$out" "$tree/build"
git -c tar.umask=0022 archive --format=tar HEAD | tar -C "$tree" -xf -
# The environments are pinned by hashes: those of this tree do.
for venv in build/wheel-venv-*; do
    [[ ! -d $venv ]] || ln -s "$PWD/$venv" "$tree/$venv"
done

say "wheels"
(cd "$tree" && tools/wheel.sh "$@" && mv build/dist/*.whl "$out/")
for venv in "$tree"/build/wheel-venv-*; do
    # Made just now: kept for the next time.
    [[ -L $venv ]] || { rm -rf "build/${venv##*/}" && mv "$venv" build/; }
done

say "source package"
python=$(ls -d "$PWD"/build/wheel-venv-*/bin/python | tail -n 1)
rm -rf "$tree/build"
(cd "$tree" && "$python" -c 'import sys, scikit_build_core.build as b; b.build_sdist(sys.argv[1])' \
    "$out" >/dev/null)

say "Debian packages"
(cd "$tree" && cmake --preset release --log-level=WARNING -D WISP_TESTS=OFF >/dev/null &&
    cmake --build --preset release -j "$jobs" --target wisp wisp_core wisp_pages >/dev/null &&
    tools/deb.sh && mv build/dist/*.deb "$out/")

say "container context and SBOM"
tools/container_context.sh >"$out/wisp-$version-container.tar.gz"
"$python" "$tree/tools/sbom.py" "$tree" "$version" "$(git rev-parse HEAD)" >"$out/wisp-$version.cdx.json"
(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
