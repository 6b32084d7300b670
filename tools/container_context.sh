#!/usr/bin/env bash
# Writes the context of the container image, HEAD without what only developers need, as a tar.gz to stdout. The same
# commit gives the same bytes.
# usage: tools/container_context.sh >wisp-X.Y.Z-container.tar.gz
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -nE 's/^project\(wisp VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
git -c tar.umask=0022 archive --format=tar --prefix="wisp-$version/" HEAD -- . ':!bench' ':!fuzz' ':!tests' | gzip -9n
