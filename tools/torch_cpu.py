#!/usr/bin/env python3
"""Makes PyPI's torch, a CUDA build, importable where it was installed without the CUDA libraries.

The loader wants those libraries by name, though nothing on a machine without a GPU calls into them.
For each one that is missing a tiny library of that name is compiled into torch/lib, whose functions
answer "no device". Needs gcc and binutils; meant for test environments, never for shipping.

usage: tools/torch_cpu.py [site-packages/torch]
"""

import re
import subprocess
import sys
import sysconfig
from collections import defaultdict
from pathlib import Path

# What Debian's own C and C++ libraries provide.
SYSTEM = re.compile(r"^(ld-linux\S*|lib(c|dl|gcc_s|gomp|m|pthread|rt|stdc\+\+))\.so")
SYSTEM_VERSION = re.compile(r"^(GLIBC|GLIBCXX|CXXABI|GCC|GOMP|GOACC|LIBGOMP|OMP)")
CUDA = re.compile(r"^_*(cu[A-Z]|cublas|cuda|cudnn|cufft|cufile|cupti|curand|cusolver|cusparse|"
                  r"p?nccl|nvJit|nvrtc|nvshmem|nvtx)")
NO_DEVICE = 100  # cudaErrorNoDevice
# These are called while torch is imported, and must seem to succeed.
SUCCEEDS = re.compile(r"^(__cuda|cudaGetLastError$|cudaPeekAtLastError$)")
GIVES_TEXT = re.compile(r"(Get(Error|Status)(String|Name)|GetLastError|_status_error)$")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_by(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-dW", str(library)))


def symbols_of(library):
    """(undefined symbol -> version, defined symbols)."""
    undefined, defined = {}, set()
    for line in output_of("nm", "-D", str(library)).splitlines():
        *_, kind, symbol = line.split()
        name, _, version = symbol.partition("@")
        if kind == "U":
            undefined[name] = version.lstrip("@")
        elif kind not in "wv":
            defined.add(name)
    return undefined, defined


def owners_of_versions(library):
    """Which file a symbol version is looked for in: the loader insists on it."""
    owners, file = {}, None
    for line in output_of("readelf", "-VW", str(library)).splitlines():
        if match := re.search(r"File: (\S+)", line):
            file = match[1]
        elif file and (match := re.search(r"Name: (\S+)", line)):
            owners[match[1]] = file
    return owners


def source_of(symbol):
    if SUCCEEDS.match(symbol):
        return f"long {symbol}(void) {{ return 0; }}"
    if GIVES_TEXT.search(symbol):
        return f'const char* {symbol}(void) {{ return "no device"; }}'
    return f"long {symbol}(void) {{ return {NO_DEVICE}; }}"


def compile_stand_in(folder, name, symbols, versions):
    """A library `name` that defines `symbols`, under the versions that callers ask for."""
    body = [source_of(symbol) for symbol in symbols]
    body.append(f"int stand_in_for_{re.sub(r'[^A-Za-z0-9]', '_', name)};")
    by_version = defaultdict(list)
    for symbol in symbols:
        by_version[versions.get(symbol) or "STAND_IN"].append(symbol)
    command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-x", "c", "-",
               f"-Wl,-soname,{name}", "-o", str(folder / name)]
    script = folder / f"{name}.map"
    if any(version != "STAND_IN" for version in by_version):
        script.write_text("".join(f"{version} {{ global: {'; '.join(names)}; }};\n"
                                  for version, names in by_version.items()))
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, input="\n".join(body), text=True, check=True)
    script.unlink(missing_ok=True)


def main():
    packages = sysconfig.get_paths()["purelib"]
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(packages, "torch")) / "lib"
    libraries = sorted(folder.glob("*.so"))
    present = {library.name for library in libraries}
    missing, undefined, defined, owners = set(), {}, set(), {}
    for library in libraries:
        missing.update(n for n in needed_by(library) if n not in present and not SYSTEM.match(n))
        wanted, provided = symbols_of(library)
        undefined.update(wanted)
        defined |= provided
        owners.update(owners_of_versions(library))
    if not missing:
        return
    runtime = next((n for n in sorted(missing) if n.startswith("libcudart")), min(missing))
    contents = defaultdict(list)
    versions = {}
    for symbol, version in sorted(undefined.items()):
        if symbol in defined or SYSTEM_VERSION.match(version) or not CUDA.match(symbol):
            continue
        owner = owners.get(version)
        contents[owner if owner in missing else runtime].append(symbol)
        versions[symbol] = version if owner in missing else ""
    for name in sorted(missing):
        compile_stand_in(folder, name, contents[name], versions)


if __name__ == "__main__":
    main()
