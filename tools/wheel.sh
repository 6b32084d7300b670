#!/usr/bin/env bash
# Builds wheels into build/dist: one with the stable ABI for Python 3.12 and later, one each for 3.10 and
# 3.11, of the interpreters that this machine has (with their headers). auditwheel takes in the shared
# libraries and names the oldest glibc that the wheel runs on.
# WISP_MACHINE=aarch64 cross-compiles with cmake/aarch64.cmake, by the headers of the same interpreters: machines of
# 64 bits with the same order of bytes do not differ in what a module sees of them (tools/aarch64.sh).
# usage: tools/wheel.sh [INTERPRETER...]
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/build/dist
requirements=tools/requirements-wheel.txt
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} PYTHONDONTWRITEBYTECODE=1
unset PYTHONHOME PYTHONPATH
# By the name that the presets have: Debian's Python would name another, which the compiler's cache does not know.
export CXX=${CXX:-g++}

machine=${WISP_MACHINE:-$(uname -m)}
crossed=false
[[ $machine == "$(uname -m)" ]] || crossed=true

say() { echo "wheel: $*" >&2; }

# Whether it runs, is of that version, and can compile modules and make environments.
usable() {
    [[ -x $1 ]] && "$1" -c "import os, sys, sysconfig, ensurepip
assert sys.version_info[:2] == (3, $2)
assert os.path.exists(os.path.join(sysconfig.get_paths()['include'], 'Python.h'))" 2>/dev/null
}

find_python() {
    local place
    for place in "$(command -v "python3.$1" || true)" "/usr/bin/python3.$1" \
        "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$1".*/bin/"python3.$1" \
        "/opt/python/cp3$1-cp3$1/bin/python"; do
        if usable "$place" "$1"; then echo "$place" && return; fi
    done
    return 1
}

find_pythons() {
    local minor found=false
    for minor in 10 11; do
        find_python $minor || say "no Python 3.$minor with headers here; no wheel for it"
    done
    for minor in 12 13 14; do
        if find_python $minor; then found=true && break; fi
    done
    $found || say "no Python of at least 3.12 with headers here; no wheel with the stable ABI"
}

build_wheel() {
    local python=$1 version venv raw built stamp
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    venv=build/wheel-venv-$version raw=build/wheel-raw-$version built=build/wheel-$version
    stamp="$("$python" --version) $(sha256sum <"$requirements")"
    if [[ ! -f $venv/stamp || $(<"$venv/stamp") != "$stamp" ]]; then
        say "creating $venv"
        "$python" -m venv --clear "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
            --only-binary :all: -r "$requirements"
        echo "$stamp" >"$venv/stamp"
    fi
    say "building with Python $version for $machine"
    local settings=() target=() list=(ldd) bin=$PWD/$venv/bin
    if $crossed; then
        raw+=-$machine built+=-$machine
        target=(_PYTHON_HOST_PLATFORM="linux-$machine"
            SETUPTOOLS_EXT_SUFFIX=".cpython-${version/./}-$machine-linux-gnu.so")
        settings=(--config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/cmake/$machine.cmake")
        list=("qemu-$machine-static" "/lib/ld-linux-$machine.so.1" --list)
    fi
    rm -rf "$raw" && mkdir -p "$raw" "$out"
    # As deep as build/release, so that the compiler's cache knows the paths.
    env "${target[@]}" "$venv/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
        --no-build-isolation --config-settings=build-dir="$built" "${settings[@]}" --wheel-dir "$raw" .
    if $crossed; then
        # auditwheel calls it by its plain name.
        mkdir "$raw/bin" && ln -s "$(command -v "$machine-linux-gnu-strip")" "$raw/bin/strip"
        bin=$PWD/$raw/bin:$bin
    fi
    # Not by a process substitution, whose failure nobody sees: a wheel would lack what was not listed.
    local listed linked
    listed=$("${list[@]}" "$built/bin/wisp")
    mapfile -t linked < <(grep -o '/[^ ]*' <<<"$listed")
    ((${#linked[@]})) || { say "${list[*]} names no library of $built/bin/wisp"; exit 1; }
    "$venv/bin/python" tools/older_libstdcxx.py "$raw"/wisp_sync-*.whl "$raw/libraries" "${linked[@]}"
    # By python -m: programs of an environment know only the folder that it was made in.
    LD_LIBRARY_PATH=$PWD/$raw/libraries PATH=$bin:$PATH "$venv/bin/python" -m auditwheel repair --strip \
        --wheel-dir "$raw/repaired" \
        "$raw"/wisp_sync-*.whl >"$raw/auditwheel.log" 2>&1 ||
        { tail -n 20 "$raw/auditwheel.log" >&2; exit 1; }
    mv "$raw"/repaired/wisp_sync-*.whl "$out/"
}

pythons=("$@")
((${#pythons[@]})) || mapfile -t pythons < <(find_pythons)
((${#pythons[@]})) || { say "no interpreter to build for"; exit 1; }
for python in "${pythons[@]}"; do build_wheel "$python"; done
(cd "$out" && ls -l wisp_sync-*.whl | awk '{ printf "%s  %.1f MB\n", $NF, $5 / 1e6 }')
