#!/usr/bin/env python3
"""Lets what GCC 12 linked run with GCC 11's libstdc++, which RHEL 9 and its like have.

GCC 12 gave std::condition_variable::wait a new version, GLIBCXX_3.4.30: the older one ends the program where a
thread is cancelled while it waits, and nothing here cancels threads. Every libstdc++ since 4.4 has the older one. A
file that needs the newer version for this function alone is made to ask for the older; any other is left as it is.

usage: tools/older_libstdcxx.py WHEEL FOLDER LIBRARY...
The wheel is changed in place; a library that has to change is copied into FOLDER first.
"""

from __future__ import annotations

import base64
import hashlib
import io
import struct
import sys
import zipfile
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection

NEWER, OLDER = b"GLIBCXX_3.4.30", b"GLIBCXX_3.4.11"
WAIT = "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"


def name_hash(name: bytes) -> int:
    """As the ELF standard has it."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
    return value


def needed_versions(data: bytes, section: GNUVerNeedSection) -> list[tuple[int, int]]:
    """Where each entry of the section lies in the file, and the index by which symbols refer to it."""
    found, library = [], section["sh_offset"]
    for _ in range(section.num_versions()):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, library)
        entry = library + first
        for _ in range(count):
            _, _, index, _, step = struct.unpack_from("<IHHII", data, entry)
            found.append((entry, index & 0x7FFF))
            entry += step
        library += following
    return found


def with_older(data: bytes) -> bytes | None:
    """The file with the older version; nothing where it needs no change or cannot have one."""
    if not data.startswith(b"\x7fELF") or NEWER + b"\0" not in data:
        return None
    elf = ELFFile(io.BytesIO(data))
    needed = next((s for s in elf.iter_sections() if isinstance(s, GNUVerNeedSection)), None)
    versions = next((s for s in elf.iter_sections() if isinstance(s, GNUVerSymSection)), None)
    if needed is None or versions is None:
        return None
    names = elf.get_section(needed["sh_link"])
    older_name = names.data().find(b"\0" + OLDER + b"\0") + 1
    symbols = [(s.name, v["ndx"]) for s, v in zip(
        elf.get_section_by_name(".dynsym").iter_symbols(), versions.iter_symbols(), strict=True)]
    changed = bytearray(data)
    for entry, index in needed_versions(data, needed):
        name = struct.unpack_from("<I", data, entry + 8)[0]
        if names.get_string(name).encode() != NEWER:
            continue
        if not older_name or {symbol for symbol, version in symbols if version == index} != {WAIT}:
            return None
        struct.pack_into("<I", changed, entry, name_hash(OLDER))
        struct.pack_into("<I", changed, entry + 8, older_name)
    return bytes(changed) if changed != data else None


def change_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as before:
        members = [(info, before.read(info)) for info in before.infolist()]
    record, hashes = None, {}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as after:
        for info, data in members:
            if info.filename.endswith(".dist-info/RECORD"):
                record = info, data.decode()
                continue
            data = with_older(data) or data
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            hashes[info.filename] = f"{info.filename},sha256={digest},{len(data)}"
            after.writestr(info, data)
        assert record, wheel
        lines = [hashes.get(line.split(",")[0], line) for line in record[1].splitlines()]
        after.writestr(record[0], "\n".join(lines) + "\n")


def main() -> None:
    wheel, folder = Path(sys.argv[1]), Path(sys.argv[2])
    change_wheel(wheel)
    folder.mkdir(parents=True, exist_ok=True)
    for library in map(Path, sys.argv[3:]):
        changed = with_older(library.read_bytes())
        if changed:
            (folder / library.name).write_bytes(changed)
            (folder / library.name).chmod(0o644)


if __name__ == "__main__":
    main()
