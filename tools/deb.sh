#!/usr/bin/env bash
# Makes build/dist/wisp_VERSION_ARCH.deb (the command, its manual and completion, units for systemd) and
# libwisp-dev_VERSION_ARCH.deb (headers, static library, CMake and pkg-config files) from build/release,
# and holds both against lintian where it is installed. The same tree gives the same bytes.
# WISP_BUILD=build/aarch64 DEB_HOST_ARCH=arm64 packs what was cross-compiled.
set -euo pipefail
cd "$(dirname "$0")/.."

built=${WISP_BUILD:-build/release}
out=$PWD/build/dist
version=$(sed -nE 's/^project\(wisp VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
architecture=${DEB_HOST_ARCH:-$(dpkg --print-architecture)}
strip="strip"
[[ $architecture == "$(dpkg --print-architecture)" ]] ||
    strip=$(dpkg-architecture -a"$architecture" -qDEB_HOST_GNU_TYPE)-strip
maintainer=${DEBFULLNAME:-wisp developers} email=${DEBEMAIL:-noreply@github.com}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
# Built on an older system, a package runs on a newer one; never the other way round.
work=$(mktemp -d "${TMPDIR:-/tmp}/wisp-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
umask 022

stage() {
    local package=$1 component=$2
    DESTDIR=$work/$package cmake --install "$built" --prefix /usr --component "$component" >/dev/null
    local doc=$work/$package/usr/share/doc/$package
    mkdir -p "$doc" "$work/$package/DEBIAN"
    {
        echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
        echo "Upstream-Name: wisp"
        echo
        echo "Files: *"
        echo "Copyright: 2025-2026 the developers of wisp"
        echo "License: Apache-2.0"
        echo " On Debian systems the text is in /usr/share/common-licenses/Apache-2.0."
    } >"$doc/copyright"
    printf 'wisp (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source.\n\n -- %s <%s>  %s\n' \
        "$version" "$maintainer" "$email" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" |
        gzip -9n >"$doc/changelog.gz"
}

# In KiB: files rounded up, one for each folder. What du says of folders depends on the file system.
installed_size() {
    find "$1" -mindepth 1 -path "$1/DEBIAN" -prune -o -printf '%y %s\n' |
        awk '{ size += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print size }'
}

# seal PACKAGE SECTION DEPENDS TITLE TEXT
seal() {
    local root=$work/$1
    {
        echo "Package: $1"
        echo "Version: $version"
        echo "Architecture: $architecture"
        echo "Maintainer: $maintainer <$email>"
        echo "Installed-Size: $(installed_size "$root")"
        echo "Depends: $3"
        echo "Section: $2"
        echo "Priority: optional"
        echo "Description: $4"
        fold -s -w 76 <<<"$5" | sed 's/^/ /; s/ *$//'
    } >"$root/DEBIAN/control"
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf "%P\\0" | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    find "$root" -print0 | xargs -0 touch -h -d "@$SOURCE_DATE_EPOCH"
    # By one thread: several cut the data into other blocks.
    dpkg-deb --root-owner-group --threads-max=1 -Zxz --build "$root" "$out/$1_${version}_$architecture.deb" >/dev/null
}

shared_libraries() {
    mkdir -p "$work/debian"
    printf 'Source: wisp\n\nPackage: wisp\nArchitecture: any\n' >"$work/debian/control"
    (cd "$work" && DEB_HOST_ARCH=$architecture dpkg-shlibdeps -O wisp/usr/bin/wisp 2>/dev/null) |
        sed -n 's/^shlibs:Depends=//p'
}

mkdir -p "$out"
stage wisp command
root=$work/wisp
"$strip" --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/wisp"
find "$root/usr/share/man" -name '*.1' -exec gzip -9n {} +
# Debian's zsh looks here for what packages bring.
mkdir -p "$root/usr/share/zsh/vendor-completions"
mv "$root"/usr/share/zsh/site-functions/_wisp "$root/usr/share/zsh/vendor-completions/"
rmdir "$root/usr/share/zsh/site-functions"
if compgen -G 'deploy/systemd/*.service' >/dev/null; then
    install -D -m 644 -t "$root/lib/systemd/system" deploy/systemd/*.service deploy/systemd/*.timer
fi
seal wisp utils "$(shared_libraries), ca-certificates" \
    "bit-exact deltas of model weights, through a bucket" \
    "Keeps copies of a language model in step with its trainer by sending only the weights that changed, through a folder, an S3-compatible bucket or the Hugging Face Hub."

stage libwisp-dev library
"$strip" --strip-debug --enable-deterministic-archives "$work/libwisp-dev/usr/lib/libwisp.a"
seal libwisp-dev libdevel \
    "libhwy-dev, libfmt-dev, libcurl4-openssl-dev | libcurl4-gnutls-dev, libssl-dev, zlib1g-dev, libpugixml-dev, pkgconf" \
    "bit-exact deltas of model weights (development files)" \
    "Headers, the static library, and what CMake and pkg-config need to find them, of wisp: weight sync for reinforcement learning by deltas."

for deb in "$out/wisp_${version}_$architecture.deb" "$out/libwisp-dev_${version}_$architecture.deb"; do
    ls -l "$deb" | awk '{ sub(".*/", "", $NF); printf "%s  %.1f MB\n", $NF, $5 / 1e6 }'
    ! command -v lintian >/dev/null || lintian --fail-on error --suppress-tags \
        bad-distribution-in-changes-file "$deb" >"$work/lintian" || { cat "$work/lintian" >&2; exit 1; }
done
