#!/usr/bin/env bash
# Cross-compiles for aarch64 on a Debian 12 of another architecture: the command, Debian packages (into
# build/dist), and the tests of kernels and codecs, which then run under qemu. Needs root: it gives the machine
# a second architecture. `tools/fresh_machine.sh aarch64` does it on a machine that is thrown away.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${JOBS:-$(nproc)}
say() { echo "aarch64: $*" >&2; }

here=(cmake ninja-build ccache pkg-config g++-aarch64-linux-gnu binutils-aarch64-linux-gnu qemu-user-static dpkg-dev
      nlohmann-json3-dev libcli11-dev)
there=(libhwy-dev libfmt-dev libssl-dev zlib1g-dev libcurl4-openssl-dev libpugixml-dev prometheus-cpp-dev
       libcpp-httplib-dev libgtest-dev)
dpkg --print-foreign-architectures | grep -qx arm64 || { dpkg --add-architecture arm64 && apt-get -qq update; }
DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
    "${here[@]}" "${there[@]/%/:arm64}" >/dev/null

say "compiling"
cmake -G Ninja -S . -B build/aarch64 -D CMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" \
    -D CMAKE_BUILD_TYPE=Release --log-level=WARNING >/dev/null
cmake --build build/aarch64 -j "$jobs" --target wisp wisp_core wisp_pages test_base test_kernel test_codec >/dev/null

say "under qemu"
for test in base kernel codec; do
    (cd build/aarch64 && qemu-aarch64-static bin/test_$test --gtest_brief=1)
done
qemu-aarch64-static build/aarch64/bin/wisp --version
WISP_BUILD=build/aarch64 DEB_HOST_ARCH=arm64 tools/deb.sh
