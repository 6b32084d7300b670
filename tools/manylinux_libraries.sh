#!/usr/bin/env bash
# For cibuildwheel, inside a manylinux_2_28 container: the libraries that wisp stands on, from vcpkg, static,
# into /opt/wisp-libraries. What the system has there is too old or missing.
set -euo pipefail

vcpkg_tag=${VCPKG_TAG:-2025.01.13}
triplet=$(case $(uname -m) in x86_64) echo x64-linux ;; aarch64) echo arm64-linux ;; esac)
[[ $triplet ]] || { echo "no triplet for $(uname -m)" >&2; exit 1; }

dnf -y -q install gcc-toolset-14-gcc-c++ git curl zip unzip tar perl-IPC-Cmd perl-Time-Piece ninja-build
git clone --quiet --depth 1 --branch "$vcpkg_tag" https://github.com/microsoft/vcpkg /opt/vcpkg
/opt/vcpkg/bootstrap-vcpkg.sh -disableMetrics
# Position-independent, since they end up in a module.
VCPKG_FORCE_SYSTEM_BINARIES=1 /opt/vcpkg/vcpkg install --triplet "$triplet" \
    highway fmt nlohmann-json cli11 openssl zlib 'curl[core,openssl]' pugixml 'prometheus-cpp[core,pull]' cpp-httplib
ln -sfn "/opt/vcpkg/installed/$triplet" /opt/wisp-libraries
