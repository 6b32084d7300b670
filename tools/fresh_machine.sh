#!/usr/bin/env bash
# Clones HEAD into a bare Debian 12 and runs one make verb there, as a newcomer's machine would; or
# installs what lies in build/dist there, without a compiler: the wheel that fits, or the packages.
# Needs root and debootstrap. The mirror, proxies and certificates are this machine's, and so is
# where pip, npm, Go and cargo ask.
# usage: tools/fresh_machine.sh [test|demo|...]
#        tools/fresh_machine.sh aarch64       cross-compiles there, and runs it under qemu
#        tools/fresh_machine.sh install-wheel|install-deb [bookworm|trixie] [amd64|arm64]
# A machine of another architecture runs under qemu: qemu-user-static has to be installed.
set -euo pipefail

verb=${1:-test}
suite=${2:-bookworm}
architecture=${3:-$(dpkg --print-architecture)}
repo=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/wisp
tarball=$cache/$suite-minbase-$architecture.tar

# Each program has a variable of its own for a bundle of authorities. The files get a folder of
# their own over there, since Debian's package writes /etc/ssl/certs anew when it is installed.
certificate_folder=/etc/ssl/host
certificate_variables=(SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE PIP_CERT GIT_SSL_CAINFO
    NODE_EXTRA_CA_CERTS CARGO_HTTP_CAINFO)
go_variables="GOPROXY GONOPROXY GOSUMDB GONOSUMDB GOPRIVATE GOINSECURE"

say() { echo "fresh machine: $*"; }
die() { say "$*" >&2; exit 1; }

((EUID == 0)) || die "needs root"
command -v debootstrap >/dev/null || die "needs debootstrap: apt-get install debootstrap"
# In a mount namespace of its own, so that no end of this script can leave a mount behind.
[[ ${WISP_OWN_MOUNTS:-} ]] ||
    WISP_OWN_MOUNTS=1 exec unshare --mount --propagation private "$(readlink -f "$0")" "$@"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/wisp-fresh.XXXXXX")
root=$work/root

mounts_below() { awk -v top="$work/" 'index($2, top) == 1 { print $2 }' /proc/self/mounts; }

# The kernel hands programs of another architecture to qemu, also below a root of their own. It does so for the
# whole machine, so what was not there before is taken away at the end: by the last that needs it. Each holds a
# shared lock (8) meanwhile, and another (9) for the moment in which it registers or takes away.
binfmt=/proc/sys/fs/binfmt_misc
binfmt_settings=/usr/lib/binfmt.d
registered=
register_qemu() {
    local name
    [[ $verb == aarch64 || $architecture != "$(dpkg --print-architecture)" ]] || return 0
    case $verb:$architecture in
        aarch64:* | *:arm64) name=qemu-aarch64 ;;
        *) die "no qemu is known for $architecture" ;;
    esac
    [[ -f $binfmt_settings/$name.conf ]] || die "needs qemu: apt-get install qemu-user-static"
    [[ -e $binfmt/register ]] || mount -t binfmt_misc binfmt_misc $binfmt
    mkdir -p "$cache"
    exec 8>>"$cache/$name.users" 9>>"$cache/$name.lock"
    flock 9
    flock --shared 8
    # The run that registers it notes the boot it did so in: what the machine itself had stays registered.
    if [[ ! -e $binfmt/$name ]]; then
        cat "$binfmt_settings/$name.conf" >$binfmt/register
        cat /proc/sys/kernel/random/boot_id >"$cache/$name.ours"
    fi
    registered=$name
    flock --unlock 9
}

# Whatever fails here, the gigabytes below go.
unregister_qemu() {
    local ours=$cache/$registered.ours
    [[ $registered ]] || return 0
    flock 9
    flock --nonblock 8 || return 0  # others need it still
    [[ -f $ours && $(<"$ours") == "$(</proc/sys/kernel/random/boot_id)" ]] || return 0
    rm -f "$ours"
    [[ ! -e $binfmt/$registered ]] || echo -1 >"$binfmt/$registered"
}

remove_work() {
    unregister_qemu || true
    for place in dev sys proc root/.cache/ccache root/.pyenv; do
        mountpoint -q "$root/$place" || continue
        umount -R "$root/$place" || umount -R -l "$root/$place" || true
    done
    if [[ $(mounts_below) ]]; then
        say "left in place, still mounted: $(mounts_below | tr '\n' ' ')" >&2
    else
        rm -rf --one-file-system "$work"
    fi
}
trap remove_work EXIT
trap 'exit 130' INT TERM HUP

# Of Debian's archive, whichever of its suites this machine itself is of.
find_mirror() {
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' |
        awk '($2 == "bookworm" || $2 == "trixie") && $3 == "main" && !found { print $1; found = 1 }')
    [[ $mirror ]] || die "apt on this machine has no source for $suite"
}

make_tarball() {
    say "bootstrapping $suite (kept in $cache)"
    mkdir -p "$cache"
    debootstrap --variant=minbase --arch="$architecture" "$suite" "$root" "$mirror" >"$work/debootstrap.log" ||
        { tail -n 20 "$work/debootstrap.log" >&2; die "debootstrap failed"; }
    tar --one-file-system --exclude='./var/cache/apt/archives/*.deb' -C "$root" -cf "$tarball.$$" .
    mv "$tarball.$$" "$tarball"
}

# Copies PATH to the same place in the root, where it exists here.
carry() {
    local path
    for path in "$@"; do
        [[ -e $path ]] || continue
        mkdir -p "$root$(dirname "$path")"
        cp -rL "$path" "$root$(dirname "$path")/"
    done
}

# Lines of FILE that say where to ask, and nothing else of it: no token, no habit.
carry_lines() {
    local file=$1 into=$root$2 keys=$3
    [[ -f $file ]] || return 0
    mkdir -p "$(dirname "$into")"
    grep -E "^($keys)[ =]" "$file" >"$into" || true
}

furnish() {
    rm -f "$root/etc/apt/sources.list" "$root/etc/resolv.conf"
    carry /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/keyrings /etc/apt/trusted.gpg.d \
        /usr/share/keyrings /etc/resolv.conf /etc/hosts \
        /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates /etc/pip.conf
    if ! grep -rqs "$suite" "$root"/etc/apt/sources.list*; then
        rm -rf "$root"/etc/apt/sources.list*
        echo "deb $mirror $suite main" >"$root/etc/apt/sources.list"
    fi
    local settings=${PIP_CONFIG_FILE:-$HOME/.config/pip/pip.conf}
    [[ ! -f $settings ]] || install -D -m 600 "$settings" "$root/root/.config/pip/pip.conf"
    local name
    for name in "${certificate_variables[@]}"; do
        [[ ! -f ${!name:-} ]] || install -D -m 644 "${!name}" "$root$certificate_folder/$name.pem"
    done
    local npm='(@[^:]+:)?registry|proxy|https-proxy|noproxy|strict-ssl'
    carry_lines "$HOME/.npmrc" /root/.npmrc "$npm|omit-lockfile-registry-resolved"
    carry_lines "${GOENV:-$HOME/.config/go/env}" /root/.config/go/env "${go_variables// /|}"
    # How to reach the archive, but none of this machine's hooks and habits.
    apt-config dump | grep -E '^Acquire::(https?|ftp|Retries|Check-Valid-Until)\b' \
        >"$root/etc/apt/apt.conf.d/99host" || true
}

# A newcomer's environment, plus what reaching the registries takes, and how many may compile at once. Folders
# of this machine are left out: they do not exist over there.
inside() {
    local carried=() name
    for name in $(compgen -e); do
        case $name in
            *_FIND_LINKS | *_CONFIG_FILE | *_CACHE_DIR | PIP_CERT) ;;
            JOBS | PIP_* | UV_* | npm_config_registry | NPM_CONFIG_REGISTRY | CARGO_REGISTRIES_*_INDEX | \
                http_proxy | https_proxy | no_proxy | HTTP_PROXY | HTTPS_PROXY | NO_PROXY)
                carried+=("$name=${!name}") ;;
        esac
        [[ " $go_variables " != *" $name "* ]] || carried+=("$name=${!name}")
    done
    for name in "${certificate_variables[@]}"; do
        [[ ! -f $root$certificate_folder/$name.pem ]] ||
            carried+=("$name=$certificate_folder/$name.pem")
    done
    env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        TERM="${TERM:-dumb}" LANG=C.UTF-8 "${carried[@]}" \
        chroot "$root" /bin/bash -euo pipefail -c "$1"
}

# A machine without a compiler, on which a user installs what was built elsewhere.
install_wheel='
    apt-get -qq install -y --no-install-recommends python3-venv ca-certificates >/dev/null
    if command -v cc gcc g++ c++; then exit 1; fi
    python3 -m venv /root/venv
    pip="/root/venv/bin/pip install --quiet --disable-pip-version-check --only-binary :all:"
    $pip numpy
    $pip --no-index --find-links /root/dist wisp-sync
    cd /root && . venv/bin/activate
    wisp --version
    python dist/first_run.py
    wisp status bucket/run'
install_deb='
    apt-get -qq install -y --no-install-recommends /root/dist/wisp_*_$(dpkg --print-architecture).deb >/dev/null
    if command -v cc gcc g++ c++; then exit 1; fi
    wisp --version
    test -s /usr/share/man/man1/wisp-publish.1.gz -o ! -d /usr/share/man/man1
    sh /root/dist/encode_recorded.sh /root/dist/data wisp
    apt-get -qq install -y --no-install-recommends /root/dist/libwisp-dev_*_$(dpkg --print-architecture).deb >/dev/null
    pkg-config --libs --cflags wisp
    apt-get -qq remove -y wisp libwisp-dev >/dev/null
    test ! -e /usr/bin/wisp'
case $verb in
    install-wheel) task=$install_wheel ;;
    install-deb) task=$install_deb ;;
    aarch64) task="cd /root/wisp && tools/aarch64.sh" ;;
    *) task="cd /root/wisp && make $(printf %q "$verb")" ;;
esac

git -C "$repo" rev-parse -q --verify HEAD >/dev/null || die "$repo has no commit to clone"
[[ -z $(git -C "$repo" status --porcelain) ]] ||
    say "note: only HEAD is cloned, not the uncommitted changes"

mkdir "$root"
register_qemu
find_mirror
if [[ -f $tarball ]]; then tar -C "$root" -xpf "$tarball"; else make_tarball; fi
furnish
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
brought=
if [[ $verb == aarch64 ]]; then
    # Not a measurement: what was compiled before need not be again.
    mkdir -p "${XDG_CACHE_HOME:-$HOME/.cache}/ccache" "$root/root/.cache/ccache"
    mount --bind "${XDG_CACHE_HOME:-$HOME/.cache}/ccache" "$root/root/.cache/ccache"
    # Wheels are for the Pythons of this machine, which a bare Debian has but one of.
    if [[ -d ${PYENV_ROOT:-$HOME/.pyenv} ]]; then
        mkdir -p "$root/root/.pyenv"
        mount --bind -o ro "${PYENV_ROOT:-$HOME/.pyenv}" "$root/root/.pyenv"
    fi
fi
if [[ $verb == install-* ]]; then
    cp -r "$repo/build/dist" "$root/root/dist"
    cp "$repo/tests/python/first_run.py" "$repo/tests/golden/encode_recorded.sh" "$root/root/dist/"
    cp -r "$repo/bench/data" "$root/root/dist/data"
else
    brought="git make"
    git clone --quiet "file://$repo" "$root/root/wisp"
    say "installing git and make, all that a user must bring"
fi
inside "export DEBIAN_FRONTEND=noninteractive
        apt-get -qq update ${brought:+&& apt-get -qq install -y $brought}" >"$work/apt.log" 2>&1 ||
    { tail -n 20 "$work/apt.log" >&2; die "apt does not work inside"; }

say "$verb on $suite $architecture at $(git -C "$repo" rev-parse --short HEAD)"
start=$SECONDS status=0
inside "export DEBIAN_FRONTEND=noninteractive
$task" || status=$?
elapsed=$((SECONDS - start))
if [[ $verb == aarch64 && $status == 0 ]]; then
    mkdir -p "$repo/build/dist"
    cp "$root"/root/wisp/build/dist/* "$repo/build/dist/"
fi
((status == 0)) && verdict=PASSED || verdict="FAILED (exit $status)"
say "$verb on $suite $verdict after $((elapsed / 60)) min $((elapsed % 60)) s"
exit $status
