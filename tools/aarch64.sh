#!/usr/bin/env bash
# Cross-compiles for aarch64 on a Debian 12 of another architecture: the command, Debian packages and wheels (into
# build/dist), and the tests of kernels and codecs. What was built then runs under qemu: these tests, the
# golden files, and the recorded run, whose hashes lie in build/dist/aarch64-recorded.txt. Needs root: it gives the
# machine a second architecture. `tools/fresh_machine.sh aarch64` does it on a machine that is thrown away.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${JOBS:-$(nproc)}
say() { echo "aarch64: $*" >&2; }

here=(cmake ninja-build ccache pkg-config g++-aarch64-linux-gnu binutils-aarch64-linux-gnu qemu-user-static dpkg-dev
      nlohmann-json3-dev libcli11-dev python3-venv python3-dev)
there=(libhwy-dev libfmt-dev libssl-dev zlib1g-dev libcurl4-openssl-dev libpugixml-dev prometheus-cpp-dev
       libcpp-httplib-dev libgtest-dev libpython3-dev)
dpkg --print-foreign-architectures | grep -qx arm64 || { dpkg --add-architecture arm64 && apt-get -qq update; }
DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    "${here[@]}" "${there[@]/%/:arm64}" >/dev/null

say "compiling"
tests=(base kernel codec)
cmake -G Ninja -S . -B build/aarch64 -D CMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" \
    -D CMAKE_BUILD_TYPE=Release --log-level=WARNING >/dev/null
cmake --build build/aarch64 -j "$jobs" --target wisp wisp_core wisp_pages "${tests[@]/#/test_}" >/dev/null

say "under qemu: unit tests"
for test in "${tests[@]}"; do
    (cd build/aarch64 && qemu-aarch64-static bin/test_"$test" --gtest_brief=1)
done

say "under qemu: golden files"
venv=build/golden-venv
[[ -x $venv/bin/pytest ]] || {
    /usr/bin/python3 -m venv $venv
    grep -E '^(numpy|pytest)==' tests/requirements.txt |
        xargs $venv/bin/pip install --quiet --disable-pip-version-check
}
wisp=$PWD/build/aarch64/wisp-under-qemu
printf '#!/bin/sh\nexec qemu-aarch64-static %q "$@"\n' "$PWD/build/aarch64/bin/wisp" >"$wisp"
chmod +x "$wisp"
"$wisp" --version
WISP_BIN=$wisp PYTHONDONTWRITEBYTECODE=1 $venv/bin/python -m pytest -q -p no:cacheprovider tests/golden

say "under qemu: the recorded run"
mkdir -p build/dist
tests/golden/encode_recorded.sh bench/data "$wisp" >build/dist/aarch64-recorded.txt
WISP_KERNEL=reference tests/golden/encode_recorded.sh bench/data "$wisp" | cmp - build/dist/aarch64-recorded.txt

say "packages and wheels"
WISP_BUILD=build/aarch64 DEB_HOST_ARCH=arm64 tools/deb.sh
WISP_MACHINE=aarch64 tools/wheel.sh
