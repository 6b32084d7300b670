#!/usr/bin/env python3
"""Makes the golden files: small deltas that every reader must read alike, and a file for each broken rule.

    python tests/golden/make_golden.py --wisp build/release/bin/wisp [--force]

The files are kept for good, so that what wisp once wrote is read for ever; this generator is for adding. (Until the
first release, 0.1.0, a change of format writes them anew.) It refuses to overwrite a file with other bytes unless
told to with --force. Good deltas are written by wisp, some by hand (what wisp itself never writes, but the format
allows). Bad ones are made here, byte by byte, and sealed again, so that it is the deep check that fails. What a good
delta must give comes from the states it was made of.
"""
import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from golden_craft import CORRUPT, HERE, INVALID, ref, save, sparse_block, split_file, WRONG_BASE
from golden_states import by_hand, EXAMPLE_OLD, NEW, OLD, states, tensor
from golden_bad import all_bad, bad_integer_classes, bad_wide_steps
from golden_slices import bad_slices, OLD_SLICES, slices_by_hand
from golden_swift import bad_swift, swift_block, swift_by_hand, swift_states


def block_kinds(raw):
    _, tensors = split_file(raw)
    at, kinds = 0, set()
    for *_, blocks in ref.read_directory(zlib.decompress(tensors["wisp.directory"][2]), len(tensors["wisp.blocks"][2])):
        for _, _, size, _ in blocks:
            kinds |= {tensors["wisp.blocks"][2][at]} if size else set()
            at += size
    return kinds


class Store:
    def __init__(self, force):
        self.force = force

    def write(self, path, data):
        if path.exists() and path.read_bytes() == data:
            return
        if path.exists() and not self.force:
            sys.exit(f"{path} exists with other bytes: golden files stay; --force if you are sure")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


def wisp_diff(wisp, old, new, arguments):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "old.safetensors").write_bytes(old)
        (folder / "new.safetensors").write_bytes(new)
        out = folder / "delta.safetensors"
        subprocess.run([wisp, "diff", folder / "old.safetensors", folder / "new.safetensors", "-o", out, "-q", *arguments], check=True)
        return out.read_bytes()


def main():
    parser = argparse.ArgumentParser(description="Makes the golden files.")
    parser.add_argument("--wisp", default="build/release/bin/wisp")
    parser.add_argument("--force", action="store_true", help="overwrite files that differ")
    options = parser.parse_args()
    store, good, manifest, made, bases = Store(options.force), {}, {"good": {}, "bad": {}}, states(), {}
    made |= swift_states(made)

    def base_for(name, old):
        data = save(old)
        name = bases.setdefault(data, name)
        store.write(HERE / "good" / f"{name}.base.safetensors", data)
        return f"good/{name}.base.safetensors"

    def add_good(name, base, old, new, data):
        good[name] = data
        store.write(HERE / "good" / f"{name}.safetensors", data)
        manifest["good"][f"good/{name}.safetensors"] = {
            "base": base_for(base, old), "result": ref.state_digest(new),
            "sha256": {n: hashlib.sha256(t[2]).hexdigest() for n, t in new.items()}}

    for name, (old, new, arguments) in made.items():
        path = HERE / "good" / f"{name}.safetensors"
        fresh = options.force or not path.exists()          # later versions of wisp may write other good bytes
        add_good(name, name, old, new, wisp_diff(options.wisp, save(old), save(new), arguments) if fresh else path.read_bytes())
    for name, kinds in {"example": {1}, "bf16_rl": {1}, "block_raw": {2}, "block_split": {3}, "block_split_f32": {3},
                        "block_split_u8": {3}, "far_positions": {1}, "long_steps": {1}, "empty_delta": set(), "swift_example": {4}, "swift_bf16_rl": {4}, "swift_block_raw": {2},
                        "swift_block_split": {3}, "swift_far_positions": {4}, "block_steps": {5}, "swift_block_steps": {5}, "swift_empty_delta": set()}.items():
        if block_kinds(good[name]) != kinds:
            print(f"{name}: blocks of kinds {block_kinds(good[name])}, not {kinds}")
    for name, (base, old, new, data) in (by_hand(made) | swift_by_hand(made) | slices_by_hand()).items():
        add_good(name, base, old, new, data)
    assert sparse_block("BF16", OLD, NEW, 126, 19, [0, 100, 0]) == split_file(good["example"])[1]["wisp.blocks"][2]
    assert swift_block("BF16", OLD, NEW, 3, 57) == split_file(good["swift_example"])[1]["wisp.blocks"][2]

    bad = all_bad(good)
    bad |= {name: (kind, "example", quote, data) for name, (kind, quote, data) in bad_swift().items()}
    base_for("slices_norm", {"norm": OLD_SLICES["norm"]})
    bad |= bad_slices()
    old, raw = bad_integer_classes()
    base_for("integers", old)
    bad["block_classes_of_an_integer"] = (CORRUPT, "integers", "low + top at most the largest exponent of the dtype", raw)
    bad["steps_of_wide_elements"] = (CORRUPT, "integers", "of elements of at most four bytes; others MUST be rejected", bad_wide_steps())
    rule = "Before it writes: the base's schema digest and state digest are those named"
    bad["base_of_another_state"] = (WRONG_BASE, "other", rule, good["example"])
    base_for("other", {"w": tensor("BF16", [64], b"\1" + OLD[1:])})
    bad["base_of_another_schema"] = (INVALID, "integers", rule, good["example"])
    for name, (kind, base, quote, data) in sorted(bad.items()):
        store.write(HERE / "bad" / f"{name}.safetensors", data)
        base = base_for("example", EXAMPLE_OLD) if base == "example" else f"good/{base}.base.safetensors"
        manifest["bad"][f"bad/{name}.safetensors"] = {"base": base, "error": kind, "quote": quote}
    before = json.loads((HERE / "manifest.json").read_text()) if (HERE / "manifest.json").exists() else {}
    for part, rows in before.items():
        for name, row in rows.items():
            if manifest[part].get(name) != row and not options.force:
                sys.exit(f"the manifest has {name} otherwise: golden files stay; --force if you are sure")
    store.force = True                                      # what is in the manifest stays, so it only grows
    store.write(HERE / "manifest.json", (json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode())
    print(f"{len(manifest['good'])} good, {len(manifest['bad'])} bad")


if __name__ == "__main__":
    main()
