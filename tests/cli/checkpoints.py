"""Seeded checkpoints: small models, steps of training, and folders of shards."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import st
from run_wisp import wisp

CODECS = ("compact", "swift", "plain", "gap")


@dataclass
class Pair:
    old: Path
    new: Path


@dataclass
class Chain:
    states: list
    deltas: list


def bf16_weights(rng, count):
    """Weights as a network has them, as raw bf16 bits."""
    values = (rng.standard_normal(count) * 0.02).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def nudged(rng, bits, share=0.01):
    """The same bits with a share of them moved by one step up or down."""
    bits = bits.copy()
    chosen = rng.random(bits.size) < share
    steps = rng.choice(np.array([1, -1]), bits.size).astype(bits.dtype)
    bits[chosen] += steps[chosen]
    return bits


def model(rng, layers=3, width=64):
    """Several bf16 tensors, one fp32 and one that is empty."""
    tensors = {"embed.weight": ("BF16", (50, width), bf16_weights(rng, 50 * width).tobytes())}
    for i in range(layers):
        for part in ("q_proj", "up_proj"):
            name = f"model.layers.{i}.{part}.weight"
            tensors[name] = ("BF16", (width, width), bf16_weights(rng, width * width).tobytes())
    norm = rng.standard_normal(width).astype(np.float32)
    tensors["model.norm.weight"] = ("F32", (width,), norm.tobytes())
    tensors["nothing"] = ("BF16", (0, 4), b"")
    return tensors


def trained(rng, tensors, share=0.01):
    """The next step of a model: some of its bf16 and fp32 bits moved."""
    after = {}
    for name, (dtype, shape, data) in tensors.items():
        kind = {"BF16": np.uint16, "F32": np.uint32}[dtype]
        after[name] = (dtype, shape, nudged(rng, np.frombuffer(data, kind), share).tobytes())
    return after


def write_pair(folder, seed=1, **options):
    rng = np.random.default_rng(seed)
    old = model(rng, **options)
    return Pair(st.save(folder / "old.safetensors", old),
                st.save(folder / "new.safetensors", trained(rng, old)))


def write_chain(folder, steps, seed=2):
    rng = np.random.default_rng(seed)
    tensors = model(rng)
    states = [st.save(folder / "state0.safetensors", tensors)]
    deltas = []
    for i in range(1, steps):
        tensors = trained(rng, tensors)
        states.append(st.save(folder / f"state{i}.safetensors", tensors))
        deltas.append(folder / f"delta{i}.safetensors")
        wisp("diff", states[-2], states[-1], "-o", deltas[-1], "--step", i)
    return Chain(states, deltas)


def write_folder(folder, tensors, shards=2, extra=True):
    """A Hugging Face folder: shards, their index, and what else lies in such a folder."""
    folder.mkdir()
    files = {f"model-{i + 1:05}-of-{shards:05}.safetensors": {} for i in range(shards)}
    weight_map = {}
    for i, (name, tensor) in enumerate(tensors.items()):
        file = list(files)[i % shards]
        files[file][name] = tensor
        weight_map[name] = file
    for file, part in files.items():
        st.save(folder / file, part, {"format": "pt"})
    size = sum(len(data) for _, _, data in tensors.values())
    write_index(folder, {"metadata": {"total_size": size}, "weight_map": weight_map})
    if extra:
        (folder / "config.json").write_text('{"model_type": "toy"}\n')
        (folder / "tokenizer").mkdir()
        (folder / "tokenizer" / "vocab.txt").write_text("a\nb\n")
    return folder


def write_index(folder, index):
    text = index if isinstance(index, str) else json.dumps(index)
    (folder / "model.safetensors.index.json").write_text(text)


def read_index(folder):
    return json.loads((folder / "model.safetensors.index.json").read_text())


def folder_tensors(folder):
    """All tensors of a folder's shards, by name."""
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(st.load(file)[0])
    return tensors
