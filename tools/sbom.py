#!/usr/bin/env python3
"""What a build of wisp consists of, as a CycloneDX document: the shared libraries it is linked with, the
headers compiled into it, nanobind in the wheels, and the packages in the dashboard's page.

usage: tools/sbom.py TREE VERSION COMMIT     of TREE/build/release; SOURCE_DATE_EPOCH is its time
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

# Libraries that are headers only leave no trace in the program.
HEADERS = ("nlohmann-json3-dev", "libcli11-dev", "libcpp-httplib-dev", "libpugixml-dev", "libhwy-dev", "libfmt-dev")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def debian_component(package):
    shown = output("dpkg-query", "-W", "-f", "${Version} ${Architecture}", package).split()
    if len(shown) != 2:
        return None
    version, architecture = shown
    purl = f"pkg:deb/debian/{package}@{version}?arch={architecture}"
    return {"type": "library", "name": package, "version": version, "purl": purl, "bom-ref": purl}


def linked_packages(program):
    for line in output("ldd", program).splitlines():
        found = re.search(r"(?:=> )?(/\S+)", line)
        if not found:
            continue
        # Debian's database has the names from before /lib became a link.
        path = os.path.realpath(found[1])
        for place in (path, path.removeprefix("/usr")):
            owner = output("dpkg-query", "-S", place).partition(":")[0]
            if owner:
                yield owner
                break


def pinned(requirements, *names):
    for line in requirements.read_text().splitlines():
        found = re.match(r"([\w-]+)==([\w.]+)", line)
        if found and found[1] in names:
            purl = f"pkg:pypi/{found[1]}@{found[2]}"
            yield {"type": "library", "name": found[1], "version": found[2], "purl": purl, "bom-ref": purl}


def page_packages(lock):
    packages = json.loads(lock.read_text())["packages"]
    for path, package in sorted(packages.items()):
        if path and not package.get("dev"):
            name = path.removeprefix("node_modules/")
            purl = f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"
            yield {"type": "library", "name": name, "version": package["version"], "purl": purl, "bom-ref": purl}


def main():
    tree, version, commit = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    packages = {*HEADERS, *linked_packages(tree / "build/release/bin/wisp")}
    components = [c for c in map(debian_component, sorted(packages)) if c]
    components += pinned(tree / "tools/requirements-wheel.txt", "nanobind")
    components += page_packages(tree / "dashboard/package-lock.json")
    when = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    whole = f"pkg:generic/wisp@{version}"
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"wisp {version} {commit}").urn,
        "version": 1,
        "metadata": {
            "timestamp": when.isoformat(),
            "component": {
                "type": "application", "name": "wisp", "version": version, "bom-ref": whole,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "properties": [{"name": "commit", "value": commit}],
            },
        },
        "components": components,
        "dependencies": [{"ref": whole, "dependsOn": [c["bom-ref"] for c in components]}],
    }
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
