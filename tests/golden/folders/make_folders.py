"""Writes the folders of this directory: two steps of a tiny model as each project lays them out.

Run by hand when a project is added; what is there is kept. expected.json has the bits of each step.
"""

import hashlib
import json
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "cli"))
import checkpoints  # noqa: E402
import st  # noqa: E402


def lone(folder, tensors):
    folder.mkdir(parents=True)
    st.save(folder / "model.safetensors", tensors, {"format": "pt"})
    (folder / "config.json").write_text('{"model_type": "toy"}\n')


def sharded(folder, tensors):
    folder.parent.mkdir(parents=True, exist_ok=True)
    checkpoints.write_folder(folder, tensors, extra=False)
    (folder / "config.json").write_text('{"model_type": "toy"}\n')


def prime_rl(root, steps):
    for step, tensors in steps.items():
        sharded(root / "broadcasts" / f"step_{step}", tensors)
        (root / "broadcasts" / f"step_{step}" / "STABLE").touch()


def areal(root, steps):
    for step, tensors in steps.items():
        lone(root / f"weight_update_v{step}", tensors)


def trainer(root, steps):
    for step, tensors in steps.items():
        folder = root / f"checkpoint-{step}"
        lone(folder, tensors)
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
            (folder / name).write_bytes(b"PK\x03\x04 not for followers")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}) + "\n")


def slime(root, steps):
    for step, tensors in steps.items():
        sharded(root / f"weight_v{step:06}", tensors)


def miles(root, steps):
    """Deltas against a checkpoint, as miles and slime write them: by XOR, then by positions."""
    import pyarrow
    import xxhash

    rng = np.random.default_rng(21)
    before = checkpoints.trained(rng, steps[3], share=0.05)
    sharded(root / "base", before)
    for version, (encoding, after) in enumerate([("xor", steps[3]), ("overwrite", steps[12])], 1):
        folder = root / f"weight_v{version:06}"
        folder.mkdir()
        packed, sums = {}, {}
        for name, (_, _, data) in after.items():
            old, new = (np.frombuffer(d, np.uint8) for d in (before[name][2], data))
            changed = np.flatnonzero(old != new).astype("<u4")
            if not changed.size:
                continue
            listed = np.uint32(changed.size).tobytes() + changed.tobytes() + new[changed].tobytes()
            told = (old ^ new).tobytes() if encoding == "xor" else listed
            squeezed = pyarrow.compress(told, codec="zstd", asbytes=True)
            packed[name] = ("U8", (len(squeezed),), squeezed)
            sums[name] = xxhash.xxh3_128(data).hexdigest()
        file = "model-00000-of-00001.safetensors"
        st.save(folder / file, packed, sums)
        metadata = {
            "version": f"{version:06}", "base_version": f"{version - 1:06}",
            "delta_encoding": encoding, "compression_format": "zstd",
            "checksum_format": "xxh3-128",
        }  # fmt: skip
        index = {"metadata": metadata, "weight_map": dict.fromkeys(packed, file)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index) + "\n")
        before = after


def distributed(root, steps):
    """By torch's own writer: a state dict with the model's tensors in it, and an optimizer's."""
    import torch
    import torch.distributed.checkpoint as dcp

    kinds = {"BF16": torch.bfloat16, "F32": torch.float32, "F16": torch.float16}
    for step, tensors in steps.items():
        model = {
            name: torch.frombuffer(bytearray(data), dtype=kinds[kind]).reshape(shape)
            if data else torch.empty(shape, dtype=kinds[kind])
            for name, (kind, shape, data) in tensors.items()
        }  # fmt: skip
        state = {"model": model, "optimizer": {"lr": torch.ones(3), "step": step}}
        dcp.save(state, checkpoint_id=str(root / f"step_{step}"), no_dist=True)


def digest(tensors):
    return {name: hashlib.sha256(data).hexdigest() for name, (_, _, data) in sorted(tensors.items())}


def main():
    rng = np.random.default_rng(20)
    first = checkpoints.model(rng, layers=1, width=8)
    steps = {3: first, 12: checkpoints.trained(rng, first, share=0.05)}
    for make in (prime_rl, areal, trainer, slime, miles, distributed):
        if not (HERE / make.__name__).exists():
            make(HERE / make.__name__, steps)
    expected = {str(step): digest(tensors) for step, tensors in steps.items()}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
