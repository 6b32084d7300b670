#!/usr/bin/env bash
# Installs what a Debian 12 machine lacks for one purpose; silent when nothing is missing.
# usage: tools/setup.sh [build|test|bench|fuzz]
set -euo pipefail
cd "$(dirname "$0")/.."

build=(g++ cmake ninja-build make git ccache pkg-config
       libhwy-dev libfmt-dev nlohmann-json3-dev libcli11-dev libssl-dev zlib1g-dev
       libcurl4-openssl-dev libpugixml-dev prometheus-cpp-dev)
python=(python3 python3-venv ca-certificates)
clang=(clang-19 libclang-rt-19-dev)

group=${1:-build}
case $group in
    build) packages=("${build[@]}") ;;
    test)  packages=("${build[@]}" "${python[@]}" "${clang[@]}" clang-format-19
                     libgtest-dev libgmock-dev libcpp-httplib-dev
                     python3-dev binutils
                     faketime btrfs-progs e2fsprogs mount) ;;
    bench) packages=("${build[@]}" "${python[@]}" valgrind) ;;
    fuzz)  packages=("${build[@]}" "${clang[@]}" lld-19) ;;
    *)     echo "usage: tools/setup.sh [build|test|bench|fuzz]" >&2; exit 2 ;;
esac

say() { echo "setup: $*" >&2; }

retry() { "$@" || { say "failed, trying once more: $1 $2"; sleep 3; "$@"; }; }

# Chatter goes to a log; errors stay on stderr, and a failure shows the end of the log.
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 \
        -o DPkg::Lock::Timeout=300 "$@" >build/setup.log ||
        { tail -n 20 build/setup.log >&2; false; }
}

install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        say "not a Debian machine; these must be there already: ${packages[*]}"
        return
    fi
    local installed missing=() package
    installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' \
        "${packages[@]}" 2>/dev/null || true)"
    for package in "${packages[@]}"; do
        [[ $installed == *" installed:$package "* ]] || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    if ((EUID != 0)); then
        say "packages are missing; run:"
        echo "sudo apt-get update &&" \
            "sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    say "installing ${missing[*]}"
    mkdir -p build
    retry apt update
    retry apt install --no-install-recommends "${missing[@]}"
}

# Debian's own interpreter comes first: python3-venv belongs to it, whatever the PATH calls python3.
# A second file lists packages whose own dependencies are not wanted; a last word is a command to run
# before the environment counts as made.
make_venv() {
    local venv=$1 requirements=$2 lone=${3:-} finish=${4:-:} interpreter=/usr/bin/python3 stamp
    [[ -f $requirements ]] || return 0
    [[ -x $interpreter ]] || interpreter=python3
    stamp="$("$interpreter" --version) $(cat "$requirements" ${lone:+"$lone"} | sha256sum)"
    [[ -f $venv/stamp && $(<"$venv/stamp") == "$stamp" ]] && return 0
    say "creating $venv"
    env -u PYTHONHOME -u PYTHONPATH "$interpreter" -m venv --clear "$venv"
    retry "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
    [[ -z $lone ]] ||
        retry "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$lone"
    "$finish" "$venv"
    echo "$stamp" >"$venv/stamp"
}

# PyPI's torch wants CUDA libraries; where stand-ins do not do, it gets the real ones.
finish_torch() {
    local venv=$1
    "$venv/bin/python" tools/torch_cpu.py && "$venv/bin/python" -c 'import torch' && return
    say "torch does not run with stand-ins for CUDA; installing it whole"
    retry "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --force-reinstall \
        -r tests/requirements-torch-alone.txt
}

install_packages
case $group in
    test)  make_venv build/venv tests/requirements.txt
           make_venv build/torch-venv tests/requirements-torch.txt \
               tests/requirements-torch-alone.txt finish_torch
           tools/test_servers.sh ;;
    bench) make_venv build/bench-venv bench/requirements.txt bench/requirements-arc3.txt ;;
esac
