"""What comes in equals what went out, bit for bit: every dtype, every codec, every edge."""

import numpy as np
import pytest
from safetensors import safe_open

import st
from checkpoints import CODECS
from run_wisp import answer, wisp

BLOCK = 2**20
WISP_KEYS = {"wisp_seal", "wisp_base_digest", "wisp_result_digest", "wisp_touched_digest",
             "wisp_schema_digest"}


def element_bytes(dtype):
    return max(1, st.BITS[dtype] // 8)


def random_tensor(rng, dtype, shape):
    return (dtype, shape, rng.bytes(st.byte_count(dtype, shape)))


def with_changes(rng, tensor, share):
    """The same tensor with a share of its elements given random bits."""
    dtype, shape, data = tensor
    elements = np.frombuffer(data, np.uint8).copy().reshape(-1, element_bytes(dtype))
    chosen = rng.random(len(elements)) < share
    elements[chosen] = rng.integers(0, 256, (int(chosen.sum()), elements.shape[1]), np.uint8)
    return (dtype, shape, elements.tobytes())


def round_trip(folder, old, new, codec):
    """Diffs, proves and applies; gives the report of the diff and the path of the delta."""
    a = st.save(folder / "a.safetensors", old)
    b = st.save(folder / "b.safetensors", new)
    delta, out = folder / "delta.safetensors", folder / "out.safetensors"
    report = answer("diff", a, b, "-o", delta, "--codec", codec)
    applied = answer("apply", a, delta, "-o", out)
    assert out.read_bytes() == b.read_bytes()
    assert applied["base_proven"] and applied["result_proven"]
    assert applied["result_digest"] == report["result_digest"]
    assert applied["changed_elements"] == report["changed_elements"]
    with safe_open(delta, "numpy") as stock:
        metadata = stock.metadata()
        assert list(stock.keys()) or report["changed_elements"] == 0
        assert WISP_KEYS <= set(metadata) and {"format", "version", "sparsity"} <= set(metadata)
    return report, delta


def changed_count(old, new):
    total = 0
    for name, (dtype, _, data) in old.items():
        width = element_bytes(dtype)
        a, b = (np.frombuffer(d, np.uint8).reshape(-1, width) for d in (data, new[name][2]))
        total += int((a != b).any(axis=1).sum())
    return total


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", st.BITS)
def test_every_dtype_round_trips_in_every_codec(tmp_path, dtype, codec):
    rng = np.random.default_rng(list(st.BITS).index(dtype))
    old = {"w": random_tensor(rng, dtype, (40, 100)), "same": random_tensor(rng, dtype, (8,))}
    new = {"w": with_changes(rng, old["w"], 0.05), "same": old["same"]}
    report, _ = round_trip(tmp_path, old, new, codec)
    assert report["changed_elements"] == changed_count(old, new)
    assert report["changed_tensors"] == 1


@pytest.mark.parametrize("codec", CODECS)
def test_all_dtypes_in_one_file_round_trip(tmp_path, codec):
    rng = np.random.default_rng(5)
    old = {d: random_tensor(rng, d, (24, 8)) for d in st.BITS}
    new = {d: with_changes(rng, t, 0.2) for d, t in old.items()}
    report, _ = round_trip(tmp_path, old, new, codec)
    assert report["changed_elements"] == changed_count(old, new)


@pytest.mark.parametrize("codec", CODECS)
def test_scalars_empty_and_one_element_tensors_round_trip(tmp_path, codec):
    rng = np.random.default_rng(6)
    old = {"empty": ("F32", (0,), b""), "hollow": ("I64", (3, 0, 2), b"")}
    for dtype in ("BOOL", "BF16", "F32", "F64", "C64"):
        old[f"scalar.{dtype}"] = random_tensor(rng, dtype, ())
        old[f"one.{dtype}"] = random_tensor(rng, dtype, (1,))
        old[f"cube.{dtype}"] = random_tensor(rng, dtype, (1, 1, 1))
    new = {n: (d, s, bytes(b ^ 0x5A for b in data)) for n, (d, s, data) in old.items()}
    report, _ = round_trip(tmp_path, old, new, codec)
    assert report["changed_tensors"] == 15


@pytest.mark.parametrize("codec", CODECS)
def test_checkpoint_without_any_element_round_trips(tmp_path, codec):
    old = {"empty": ("BF16", (0, 7), b"")}
    report, _ = round_trip(tmp_path, old, old, codec)
    assert report["total_elements"] == 0
    round_trip(tmp_path, {}, {}, codec)


@pytest.mark.parametrize("codec", CODECS)
def test_every_bf16_pattern_turns_into_every_kind_of_other(tmp_path, codec):
    patterns = np.arange(65536, dtype=np.uint16)
    rng = np.random.default_rng(7)
    partners = {
        "plus_one": patterns + np.uint16(1), "minus_one": patterns - np.uint16(1),
        "sign": patterns ^ np.uint16(0x8000), "far": patterns ^ np.uint16(0x5555),
        "shuffled": rng.permutation(patterns), "rare": patterns.copy(),
    }
    partners["rare"][::997] ^= np.uint16(3)
    old = {n: ("BF16", (256, 256), patterns.tobytes()) for n in partners}
    new = {n: ("BF16", (256, 256), p.tobytes()) for n, p in partners.items()}
    report, _ = round_trip(tmp_path, old, new, codec)
    assert report["changed_elements"] == changed_count(old, new)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype,kind,specials", [
    ("F16", np.uint16, [0x0000, 0x8000, 0x7C00, 0xFC00, 0x7C01, 0x7E00, 0xFFFF, 0x0001]),
    ("BF16", np.uint16, [0x0000, 0x8000, 0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0xFFFF, 0x0001]),
    ("F32", np.uint32, [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 2**32 - 1, 1]),
    ("F64", np.uint64, [0, 1 << 63, 0x7FF << 52, 0xFFF << 52, (0x7FF << 52) + 1, 0x7FF8 << 48,
                        2**64 - 1, 1]),
])
def test_nan_payloads_infinities_and_signed_zeros_survive(tmp_path, codec, dtype, kind, specials):
    old = np.repeat(np.array(specials, kind), len(specials))
    new = np.tile(np.array(specials, kind), len(specials))
    padding = np.full(5000, specials[0], kind)
    old, new = np.concatenate([old, padding]), np.concatenate([new, padding])
    tensors = [{"w": (dtype, (x.size,), x.tobytes())} for x in (old, new)]
    report, _ = round_trip(tmp_path, *tensors, codec)
    assert report["changed_elements"] == 56, "equal NaNs are equal, and -0 is not 0"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 1])
def test_changes_at_block_borders_survive(tmp_path, codec, count):
    rng = np.random.default_rng(count)
    old = rng.integers(0, 2**16, count).astype(np.uint16)
    new = old.copy()
    ends = [0, 1, count - 2, count - 1]
    ends += [p for p in (BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK) if p < count]
    new[ends] ^= np.uint16(0x0101)
    tensors = [{"w": ("BF16", (count,), x.tobytes())} for x in (old, new)]
    report, _ = round_trip(tmp_path, *tensors, codec)
    assert report["changed_elements"] == len(set(ends))


@pytest.mark.parametrize("codec", CODECS)
def test_nothing_changed_gives_a_small_delta_that_applies(tmp_path, codec):
    rng = np.random.default_rng(8)
    old = {f"t{i}": random_tensor(rng, "BF16", (100, 10)) for i in range(20)}
    report, delta = round_trip(tmp_path, old, old, codec)
    assert report["changed_elements"] == 0 and report["changed_tensors"] == 0
    assert report["sparsity"] == 1.0
    assert report["base_digest"] == report["result_digest"]
    assert delta.stat().st_size < 2048


@pytest.mark.parametrize("dtype", ["U8", "F8_E4M3", "BF16", "F32", "I64"])
def test_everything_changed_costs_no_more_than_the_tensor_itself(tmp_path, dtype):
    rng = np.random.default_rng(9)
    shape = (300_000,)
    old = random_tensor(rng, dtype, shape)
    new = (dtype, shape, bytes(np.frombuffer(old[2], np.uint8) ^ rng.integers(1, 256, len(old[2]),
                                                                              np.uint8)))
    report, delta = round_trip(tmp_path, {"w": old}, {"w": new}, "compact")
    assert report["changed_elements"] == 300_000
    assert delta.stat().st_size <= 1.01 * len(new[2]) + 1024


def test_dense_float_change_is_smaller_than_the_tensor(tmp_path):
    rng = np.random.default_rng(10)
    states = [(rng.standard_normal(300_000) * 0.02).astype(np.float32).view(np.uint32) >> 16
              for _ in range(2)]
    tensors = [{"w": ("BF16", (x.size,), x.astype(np.uint16).tobytes())} for x in states]
    _, delta = round_trip(tmp_path, *tensors, "compact")
    assert delta.stat().st_size < 0.85 * 600_000


def test_compact_is_smaller_than_gap_and_gap_than_plain(pair, tmp_path):
    compact, gap, plain = (
        answer("diff", pair.old, pair.new, "-o", tmp_path / c, "--codec", c)["payload_bytes"]
        for c in ("compact", "gap", "plain"))
    assert compact < gap < plain


def test_names_beyond_ascii_round_trip(tmp_path):
    old = {"слой.权重 \"q\"\\": ("U8", (4,), b"abcd"), "tab\tname": ("U8", (1,), b"x")}
    new = {n: (d, s, data[::-1].upper()) for n, (d, s, data) in old.items()}
    for codec in CODECS:
        report, _ = round_trip(tmp_path, old, new, codec)
        assert report["changed_tensors"] == 2


def test_output_keeps_the_header_of_the_base(tmp_path):
    old = {"w": ("U8", (4,), b"abcd")}
    a = st.save(tmp_path / "a", old, {"format": "pt", "note": "kept"})
    b = st.save(tmp_path / "b", {"w": ("U8", (4,), b"abcD")}, {"format": "other"})
    wisp("diff", a, b, "-o", tmp_path / "d")
    wisp("apply", a, tmp_path / "d", "-o", tmp_path / "out")
    tensors, metadata = st.load(tmp_path / "out")
    assert tensors["w"][2] == b"abcD"
    assert metadata == {"format": "pt", "note": "kept"}
