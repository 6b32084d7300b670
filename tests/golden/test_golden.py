"""Golden files: what a released wisp once wrote is read for ever, and every rule of doc/format.md is held by a file.

Until the first release, 0.1.0, a change of format writes them anew; from then on they are only added.

Both readers are asked, wisp and doc/reference_decoder.py, and have to agree with tests/golden/manifest.json.
"""
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "doc"))
import reference_decoder as reference  # noqa: E402

WISP = os.environ.get("WISP_BIN") or ROOT / "build/release/bin/wisp"
MANIFEST = json.loads((HERE / "manifest.json").read_text())
GOOD, BAD = MANIFEST["good"], MANIFEST["bad"]
SPEC = (ROOT / "doc/format.md").read_text()

# Lines with a MUST that no file can break, and why.
EXEMPT = {
    "`tests/golden/` holds a file for each MUST. MUST, MUST NOT and MAY are used as in RFC 2119": "says what MUST means",
    "Each tensor MUST be in the file that the index names": "a folder, not a file: test_sharded_base_is_read_by_its_map",
}


def wisp(*arguments):
    done = subprocess.run([WISP, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else {}, done.stderr


def hashes(contents):
    return {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}


def test_every_file_is_in_the_manifest_and_the_other_way_round():
    there = {str(path.relative_to(HERE)) for path in HERE.glob("*/*.safetensors")}
    bases = {entry["base"] for entry in [*GOOD.values(), *BAD.values()]}
    assert there == set(GOOD) | set(BAD) | bases
    assert sum((HERE / name).stat().st_size for name in there) < 1_500_000


@pytest.mark.parametrize("name", GOOD)
def test_wisp_reads_good_file(name, tmp_path):
    entry, out = GOOD[name], tmp_path / "out.safetensors"
    code, told, err = wisp("verify", HERE / name, "--base", HERE / entry["base"], "--json")
    assert code == 0 and told["ok"] and told["kind"] == "delta", err
    code, _, err = wisp("apply", HERE / entry["base"], HERE / name, "-o", out, "-q")
    assert code == 0, err
    result = reference.read_checkpoint(out)
    assert hashes({key: tensor[2] for key, tensor in result.items()}) == entry["sha256"]
    assert wisp("verify", out, "--json")[1]["state"] == entry["result"] == reference.state_digest(result)


@pytest.mark.parametrize("name", GOOD)
def test_reference_decoder_reads_good_file(name):
    entry = GOOD[name]
    base = reference.read_checkpoint(HERE / entry["base"])
    new = reference.read_delta(HERE / name, base)
    assert hashes(new) == entry["sha256"]
    assert reference.state_digest({key: (*base[key][:2], data) for key, data in new.items()}) == entry["result"]


@pytest.mark.parametrize("name", BAD)
def test_wisp_refuses_bad_file(name):
    code, told, err = wisp("verify", HERE / name, "--base", HERE / BAD[name]["base"], "--json")
    assert told.get("error") == BAD[name]["error"] and code not in (0, 2) and code > 0, (told, err)


@pytest.mark.parametrize("name", BAD)
def test_wisp_does_not_apply_bad_file(name, tmp_path):
    out = tmp_path / "out.safetensors"
    code, told, err = wisp("apply", HERE / BAD[name]["base"], HERE / name, "-o", out, "--json")
    assert told.get("error") == BAD[name]["error"] and code > 0 and not out.exists(), (told, err)


@pytest.mark.parametrize("name", BAD)
def test_reference_decoder_refuses_bad_file(name):
    base = reference.read_checkpoint(HERE / BAD[name]["base"])
    with pytest.raises(reference.Error) as caught:
        reference.read_delta(HERE / name, base)
    assert caught.value.kind == BAD[name]["error"], caught.value


def test_every_quote_is_in_the_specification():
    missing = [name for name, entry in BAD.items() if entry["quote"] not in SPEC]
    assert missing == []
    assert [text for text in EXEMPT if text not in SPEC] == []


def test_every_must_of_the_specification_is_held_by_a_file():
    quotes = {entry["quote"] for entry in BAD.values()} | set(EXEMPT)
    lines = [line for line in SPEC.splitlines() if "MUST" in line]
    assert len(lines) > 15
    assert [line for line in lines if not any(quote in line for quote in quotes)] == []


@pytest.mark.parametrize("name", ["example", "swift_example"])
def test_bytes_of_the_example_are_those_of_the_specification(name):
    delta = reference.File(HERE / f"good/{name}.safetensors")
    for tensor, (_, _, data) in delta.tensors.items():
        assert any(line.split() == [tensor, *(f"{byte:02x}" for byte in data)] for line in SPEC.splitlines()), tensor


def test_sharded_base_is_read_by_its_map(tmp_path):
    """A folder instead of the base file; then maps that name the wrong file, or a path."""
    name = "good/bf16_rl.safetensors"
    base = reference.read_checkpoint(HERE / GOOD[name]["base"])
    first, second = sorted(base)

    def folder(weight_map, one=(first,), two=(second,)):
        for shard, names in {"model-1.safetensors": one, "model-2.safetensors": two}.items():
            reference.write_checkpoint(tmp_path / shard, {key: base[key] for key in names})
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1.5}, "weight_map": weight_map}))

    right = {first: "model-1.safetensors", second: "model-2.safetensors"}
    folder(right)
    assert hashes(reference.read_delta(HERE / name, reference.read_checkpoint(tmp_path))) == GOOD[name]["sha256"]
    assert wisp("verify", HERE / name, "--base", tmp_path, "--json")[1]["ok"]
    wrong = [({first: "model-2.safetensors", second: "model-1.safetensors"}, {}),
             (right, {"two": (first, second)}), (right | {first: "../model-1.safetensors"}, {}),
             (right | {first: "./model-1.safetensors"}, {}), (right | {first: "model-1.bin"}, {}),
             (right | {first: "a\\model-1.safetensors"}, {})]
    for weight_map, files in wrong:
        folder(weight_map, **files)
        with pytest.raises(reference.Corrupt):
            reference.read_checkpoint(tmp_path)
        assert wisp("verify", HERE / name, "--base", tmp_path, "--json")[1]["error"] == "corrupt", weight_map
