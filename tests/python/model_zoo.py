"""Architectures, small and with random weights, that a real vLLM follows: join, three steps, proof,
and the same outputs as a fresh load of the last step.

usage: python tests/python/model_zoo.py [--only NAME] [--table FILE]    one after the other
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from byte_model import byte_tokenizer
from vllm_server import ENVIRONMENT

os.environ.update(ENVIRONMENT)
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

import torch  # noqa: E402
import plain_convolutions  # noqa: E402, F401
import selective_scan  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import wisp  # noqa: E402
import wisp.vllm  # noqa: E402
from wisp.vllm.offline import verify_offline  # noqa: E402

BF16 = torch.bfloat16
STEPS = 3
PROMPT = [7, 11, 13, 17, 19, 23]
TOKENS = 8
ALONE = "vLLM without wisp says:"

SIZES: dict[str, Any] = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
#: Head and sizes follow from each other in these.
PLAIN = {**SIZES, "hidden_size": 128, "num_key_value_heads": 4, "head_dim": None}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
GPT = {
    "vocab_size": 320, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": 256,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MLA = {
    "kv_lora_rank": 512, "q_lora_rank": 32, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "head_dim": 64, "num_key_value_heads": 4,
}  # fmt: skip
SIDE = 28  # of a picture
TOWER = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "projection_dim": 128,
}  # fmt: skip
SCAN = "the scan is the test's own: vLLM's CPU build has none for this Mamba (`selective_scan_fwd`)"


@dataclass(frozen=True)
class Entry:
    """One architecture: transformers' configuration, and how it is served."""

    name: str
    config: str
    settings: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=lambda: SIZES)
    engine: dict[str, Any] = field(default_factory=dict)  #: options of vLLM
    auto: str = "AutoModelForCausalLM"
    published: str = ""  #: the class that checkpoints name, where transformers saves another
    install: Callable[[], None] | None = None  #: operators that vLLM lacks on CPUs
    quick: bool = False
    note: str = ""
    codecs: tuple[str, ...] = ("swift",)
    bias: bool = False  #: with a `score.bias`, as trainers of rewards add it
    images: bool = False  #: asked about a picture, too
    not_served: str = ""  #: what vLLM says, without wisp, of why it does not run it on a CPU

    @property
    def pools(self) -> bool:
        return bool(self.engine.get("runner") == "pooling")


BOTH = ("swift", "compact")

ZOO = [
    Entry("Llama", "LlamaConfig", codecs=BOTH),
    Entry("Llama, compiled", "LlamaConfig", engine={"enforce_eager": False},
          note="torch.compile"),
    Entry("Llama, tied", "LlamaConfig", {"tie_word_embeddings": True}),
    Entry("Mistral", "MistralConfig", {"sliding_window": 64}),
    Entry("Qwen2", "Qwen2Config", sizes=PLAIN, note="biases"),
    Entry("Qwen3, tied", "Qwen3Config", {"tie_word_embeddings": True}),
    Entry("Qwen3", "Qwen3Config"),
    Entry("Qwen3, float16 server", "Qwen3Config", engine={"dtype": "float16"}),
    Entry("Qwen3, float32 server", "Qwen3Config", engine={"dtype": "float32"}),
    Entry("Qwen3-MoE", "Qwen3MoeConfig", EXPERTS),
    Entry("Qwen2-MoE", "Qwen2MoeConfig", {**EXPERTS, "shared_expert_intermediate_size": 64},
          sizes=PLAIN),
    Entry("Mixtral", "MixtralConfig", LOCAL, quick=True, note="experts", codecs=BOTH),
    Entry("Gemma", "GemmaConfig"),
    Entry("Gemma 2", "Gemma2Config", {"sliding_window": 64}),
    Entry("Gemma 3", "Gemma3TextConfig", {"sliding_window": 64}),
    Entry("Phi", "PhiConfig", sizes=PLAIN, note="its loader makes the head's bias anew"),
    Entry("Phi-3", "Phi3Config", sizes=PLAIN, note="fused in the checkpoint"),
    Entry("PhiMoE", "PhimoeConfig", {**LOCAL, "attention_bias": True, "lm_head_bias": True},
          sizes=PLAIN, published="PhiMoEForCausalLM", note="biases, also of the head"),
    Entry("GPT-2", "GPT2Config", sizes=GPT, quick=True, note="transposed"),
    Entry("GPT-J", "GPTJConfig", {"rotary_dim": 16}, sizes=GPT),
    Entry("GPT-BigCode", "GPTBigCodeConfig", sizes=GPT, note="one key for all heads"),
    Entry("GPT-NeoX", "GPTNeoXConfig", sizes=PLAIN, note="interleaved qkv"),
    Entry(
        "Falcon", "FalconConfig", {"new_decoder_architecture": False, "multi_query": True},
        sizes=PLAIN,
    ),
    Entry("BLOOM", "BloomConfig", {"n_head": 4, "n_layer": 2, "hidden_size": 128}, sizes={
        "vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2,
    }),
    Entry("OPT", "OPTConfig", {"ffn_dim": 128, "word_embed_proj_dim": 128}, sizes=PLAIN),
    Entry("StableLM", "StableLmConfig", sizes=PLAIN),
    Entry("StarCoder2", "Starcoder2Config", sizes=PLAIN),
    Entry("OLMo", "OlmoConfig", sizes=PLAIN),
    Entry("OLMo 2", "Olmo2Config", sizes=PLAIN),
    Entry("OLMo 3", "Olmo3Config", {"sliding_window": 64}, sizes=PLAIN),
    Entry("OLMoE", "OlmoeConfig", {"num_experts": 4, "num_experts_per_tok": 2}, sizes=PLAIN),
    Entry("Cohere", "CohereConfig", sizes=PLAIN),
    Entry("Cohere 2", "Cohere2Config", {"sliding_window": 64}, sizes=PLAIN),
    Entry("Granite", "GraniteConfig", sizes=PLAIN),
    Entry("GraniteMoE", "GraniteMoeConfig", LOCAL, sizes=PLAIN),
    Entry("GraniteMoE, shared", "GraniteMoeSharedConfig",
          {**LOCAL, "shared_intermediate_size": 64}, sizes=PLAIN),
    Entry("GraniteMoE hybrid", "GraniteMoeHybridConfig", {
        **LOCAL, "shared_intermediate_size": 64, "layer_types": ["mamba", "attention"],
        "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_n_groups": 1,
    }, sizes=PLAIN, note="Mamba-2"),
    Entry("GLM", "GlmConfig"),
    Entry("GLM-4", "Glm4Config"),
    Entry("GLM-4 MoE", "Glm4MoeConfig", {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    }),
    Entry("Nemotron", "NemotronConfig"),
    Entry("EXAONE 4", "Exaone4Config", {"sliding_window": 64}),
    Entry("DeepSeek-V2", "DeepseekV2Config", {
        **MLA, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "topk_method": "greedy",
        "n_group": 1, "topk_group": 1,
    }, note="latent attention, experts"),
    Entry("DeepSeek-V3", "DeepseekV3Config", {
        **MLA, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "topk_method": "noaux_tc",
    }),
    Entry("ERNIE 4.5", "Ernie4_5Config"),
    Entry("ERNIE 4.5 MoE", "Ernie4_5_MoeConfig", {
        "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 64, "moe_num_shared_experts": 1,
        "moe_layer_start_index": 1,
    }, sizes=PLAIN),
    Entry("SmolLM3", "SmolLM3Config", sizes=PLAIN),
    Entry("Seed-OSS", "SeedOssConfig"),
    Entry("Arcee", "ArceeConfig", sizes=PLAIN),
    Entry("Apertus", "ApertusConfig", sizes=PLAIN),
    Entry("Hunyuan dense", "HunYuanDenseV1Config"),
    Entry("dots.llm1", "Dots1Config", {
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    }, sizes=PLAIN),
    Entry("GPT-OSS", "GptOssConfig", {**LOCAL, "sliding_window": 64}),
    Entry("Persimmon", "PersimmonConfig", sizes=PLAIN),
    Entry("LFM2", "Lfm2Config", {
        "layer_types": ["conv", "full_attention"], "conv_dim": 128, "block_dim": 128,
    }, sizes=PLAIN, note="short convolutions"),
    Entry("Mamba", "MambaConfig", {"state_size": 16}, sizes={
        "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2,
    }, install=selective_scan.install, note=SCAN),
    Entry("Mamba-2", "Mamba2Config", {"num_heads": 4, "head_dim": 32, "state_size": 16,
                                      "n_groups": 1}, sizes={
        "vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 2,
    }, quick=True, note="its loader computes", codecs=BOTH),
    Entry("Jamba", "JambaConfig", {
        "num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 2, "attn_layer_offset": 1,
        "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_dt_rank": 8,
        "use_mamba_kernels": False,
    }, sizes=PLAIN, install=selective_scan.install, note=SCAN),
    Entry("Falcon-H1", "FalconH1Config", {
        "mamba_d_ssm": 128, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16,
        "mamba_n_groups": 1,
    }),
    Entry("Bamba", "BambaConfig", {
        "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_n_groups": 1,
        "attn_layer_indices": [1],
    }, sizes=PLAIN, not_served="does not dispatch through the Transformers attention interface"),
    Entry("Zamba 2", "Zamba2Config", {
        "layers_block_type": ["mamba", "hybrid"], "hybrid_layer_ids": [1], "num_mem_blocks": 1,
        "mamba_d_state": 16, "mamba_expand": 2, "n_mamba_heads": 4, "mamba_ngroups": 1,
        "mamba_headdim": 64, "adapter_rank": 8, "use_mamba_kernels": False,
        "attention_hidden_size": 256, "attention_head_dim": 64,
    }, sizes=PLAIN, note="Mamba-2, a shared block with adapters"),
    Entry("Nemotron-H", "NemotronHConfig", {
        "layers_block_type": ["mamba", "attention", "mlp"], "num_hidden_layers": 3,
        "mamba_num_heads": 8, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 1,
        "use_mamba_kernels": False, "head_dim": 32,
    }, note="Mamba-2"),
    Entry("Qwen3-Next", "Qwen3NextConfig", {
        **EXPERTS, "layer_types": ["linear_attention", "full_attention"],
        "shared_expert_intermediate_size": 64, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    }, note="linear attention, experts"),
    Entry("BERT", "BertConfig", {"intermediate_size": 128}, sizes=PLAIN, auto="AutoModel",
          engine={"runner": "pooling"}, note="pooling"),
    Entry("Qwen3, pooling", "Qwen3Config", auto="AutoModel", engine={"runner": "pooling"}),
    Entry("Qwen3, classes", "Qwen3Config", {"num_labels": 3},
          auto="AutoModelForSequenceClassification", engine={"runner": "pooling"}, bias=True,
          note="its loader makes a parameter of `score.bias` itself"),
    Entry("CLIP", "CLIPConfig", {
        "text_config": {**TOWER, "vocab_size": 320, "max_position_embeddings": 77},
        "vision_config": {**TOWER, "image_size": SIDE, "patch_size": 14}, "projection_dim": 128,
    }, sizes={}, auto="AutoModel", engine={"runner": "pooling", "max_model_len": 64}, images=True,
          note="pooling, a vision tower"),
]  # fmt: skip


@dataclass
class Result:
    """What was seen of one entry."""

    entry: Entry
    codec: str
    architecture: str = ""
    followed: bool = False
    detail: str = ""  #: the error, and what a vLLM without wisp says to the same folder
    pause_ms: float = 0.0
    seconds: float = 0.0


def build(entry: Entry, folder: Path) -> str:
    """A checkpoint folder with random weights; gives the architecture's name."""
    settings = {k: v for k, v in {**entry.sizes, **entry.settings}.items() if v is not None}
    config = getattr(transformers, entry.config)(**settings)
    torch.manual_seed(0)
    model = getattr(transformers, entry.auto).from_config(config)
    model.to(BF16).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    if entry.images:
        save_processor(folder)
    if entry.bias:
        weights = load_file(folder / "model.safetensors")
        weights["score.bias"] = torch.randn(config.num_labels).to(BF16)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    architecture = entry.published or type(model).__name__
    saved = folder / "config.json"
    written = json.loads(saved.read_text()) | {"architectures": [architecture]}
    saved.write_text(json.dumps(written))
    return architecture


def save_processor(folder: Path) -> None:
    """What makes numbers of pictures, without torchvision."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    side = {"height": SIDE, "width": SIDE}
    pictures = CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=side)
    transformers.CLIPProcessor(pictures, byte_tokenizer()).save_pretrained(folder)


def change(weights: dict[str, Any], step: int) -> None:
    """Some elements of every tensor become a little larger or smaller."""
    made = torch.Generator().manual_seed(step)
    for tensor in weights.values():
        touched = torch.rand(tensor.shape, generator=made) < 0.05
        touched.view(-1)[step % touched.numel()] = True
        noise = 1 + 0.2 * torch.randn(tensor.shape, generator=made)
        tensor[touched] = (tensor.float() * noise + 0.01).to(tensor.dtype)[touched]


class Engine:
    """A vLLM in this process."""

    def __init__(self, folder: Path, entry: Entry, run: str | None, plugin: bool = True) -> None:
        from vllm import LLM

        wisp_settings: dict[str, Any] = {}
        if plugin:
            wisp_settings["weight_transfer_config"] = {"backend": "wisp"}
        if run:
            wisp_settings["additional_config"] = {"wisp": {"run": run, "poll": 0.1}}
        settings: dict[str, Any] = {
            "skip_tokenizer_init": not entry.pools, "dtype": "bfloat16",
            "max_model_len": 128, "enforce_eager": True, "max_num_seqs": 4,
            "disable_log_stats": True, **entry.engine,
        }  # fmt: skip
        self.llm = LLM(str(folder), **wisp_settings, **settings)
        self.entry = entry

    def outputs(self) -> list[Any]:
        """Tokens with the logarithms of their probabilities, or an embedding: every bit counts."""
        from vllm import SamplingParams

        prompt: Any = {"prompt_token_ids": PROMPT}
        if self.entry.bias:
            return self.llm.classify([prompt], use_tqdm=False)[0].outputs.probs
        if self.entry.pools:
            prompts = [prompt]
            if self.entry.images:
                start = [byte_tokenizer().bos_token_id]
                shown = {"image": _picture()}
                prompts.append({"prompt_token_ids": start, "multi_modal_data": shown})
            return [made.outputs.embedding for made in self.llm.embed(prompts, use_tqdm=False)]
        sampling = SamplingParams(
            temperature=0, max_tokens=TOKENS, detokenize=False, ignore_eos=True, logprobs=3
        )
        answer = self.llm.generate([prompt], sampling, use_tqdm=False)[0].outputs[0]
        return [
            sorted((token, entry.logprob) for token, entry in place.items())
            for place in answer.logprobs
        ]

    def close(self) -> None:
        from vllm.distributed import cleanup_dist_env_and_memory

        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        cleanup_dist_env_and_memory()
        gc.collect()


def _picture() -> Any:
    from PIL import Image

    made = torch.Generator().manual_seed(0)
    colours = torch.randint(0, 256, (SIDE, SIDE, 3), generator=made, dtype=torch.uint8)
    return Image.fromarray(colours.numpy())


def drive(entry: Entry, folder: Path, codec: str = "swift") -> Result:
    """Serves it, follows three steps, and loads the last one anew.

    Of one that vLLM is known not to run only that is tried.
    """
    started = time.monotonic()
    found = Result(entry, codec)
    try:
        if entry.not_served:
            found.architecture = build(entry, folder / "served")
            found.detail = error_of_vllm_alone(entry, folder / "served") or "vLLM alone runs it"
        else:
            _drive(entry, folder, codec, found)
    except Exception as error:  # noqa: BLE001 - told in the table
        found.detail = _told(error)
        if found.architecture:
            alone = error_of_vllm_alone(entry, folder / "served")
            found.detail += f"; vLLM alone: {alone or 'runs it'}"
    found.seconds = time.monotonic() - started
    return found


def is_as_expected(found: Result) -> bool:
    """Followed, or not run by vLLM for the reason that is known."""
    reason = found.entry.not_served
    return reason in found.detail if reason else found.followed


def _told(error: BaseException) -> str:
    """With what it came from, which says more than vLLM's last word."""
    told = f"{type(error).__name__}: {error}".strip()
    cause = error.__cause__ or error.__context__
    before = _told(cause) if cause else told
    return told if before == told else f"{told} (from {before})"


def error_of_vllm_alone(entry: Entry, served: Path) -> str:
    """Why a vLLM that knows nothing of wisp does not run the same folder, in a process that has seen
    no other; "" if it does."""
    command = [sys.executable, __file__, "--only", entry.name, "--alone", str(served)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return ""
    return ended.stdout.rpartition(ALONE)[2].strip() or f"it ended with {ended.returncode}"


def run_alone(entry: Entry, served: Path) -> int:
    """In that process: prints the error."""
    try:
        if entry.install:
            entry.install()
        engine = Engine(served, entry, None, plugin=False)
        engine.outputs()
        engine.close()
    except Exception as error:  # noqa: BLE001 - what is asked for
        print(ALONE, _told(error))
        return 1
    return 0


def _drive(entry: Entry, folder: Path, codec: str, found: Result) -> None:
    served, run = folder / "served", str(folder / "run")
    if entry.install:
        entry.install()
    found.architecture = build(entry, served)
    weights = load_file(served / "model.safetensors")
    metadata = {"format": "pt"}
    with wisp.Publisher(run, weights, codec=codec, on_error="raise") as publisher:
        publisher.publish(0)
        publisher.flush()
        engine = Engine(served, entry, run)
        try:
            first = engine.outputs()
            for step in range(1, STEPS + 1):
                change(weights, step)
                publisher.publish(step)
                publisher.flush()
                moved = wisp.vllm.update(engine.llm, step, timeout=120)
                found.pause_ms = max(found.pause_ms, 1000 * moved["pause_seconds"])
                assert moved["served"] == step
                assert verify_offline(engine.llm) == 0
            followed = engine.outputs()
            status = wisp.vllm.status(engine.llm)
            told = [status[kind] for kind in ("missing", "unused", "faults")]
            assert not any(told), told
        finally:
            engine.close()
    fresh = folder / "fresh"
    shutil.copytree(served, fresh)
    save_file(weights, fresh / "model.safetensors", metadata)
    engine = Engine(fresh, entry, None)
    try:
        wanted = engine.outputs()
    finally:
        engine.close()
    assert wanted != first, "the steps changed no output: no test at all"
    assert followed == wanted, "outputs differ from those of a fresh load"
    found.followed = True


HEAD = ["| model | class | what is special | swift, ms | compact, ms |", "|---|---|---|---|---|"]


def table(found: Result, before: str) -> str:
    """For doc/engines.md: `before`, with what was run now."""
    rows = {}
    for line in before.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        rows[cells[0]] = [*cells, *[""] * (len(BOTH) + 3 - len(cells))]
    entry = found.entry
    row = rows.setdefault(entry.name, [""] * (len(BOTH) + 3))
    row[:3] = entry.name, f"`{found.architecture}`", entry.note
    cell = f"{found.pause_ms:.1f}"
    if not found.followed:
        told = found.detail.split("\n", 1)[0][:200].replace("|", "/")
        cell = f"{'vLLM alone does not run it' if entry.not_served else 'no'}: {told}"
    row[3 + BOTH.index(found.codec)] = cell
    made = ["| " + " | ".join(rows[e.name]) + " |" for e in ZOO if e.name in rows]
    return "\n".join([*HEAD, *made])


def write_table(document: Path, found: Result) -> None:
    """After each entry: what was run is there, whatever ends the rest."""
    begin, end = "<!-- zoo: begin -->\n", "<!-- zoo: end -->"
    head, _, rest = document.read_text().partition(begin)
    rows, _, tail = rest.partition(end)
    document.write_text(f"{head}{begin}{table(found, rows)}\n{end}{tail}")


def one(entry: Entry, codec: str, document: Path | None) -> bool:
    """Runs it here, and says how it went."""
    with tempfile.TemporaryDirectory() as folder:
        found = drive(entry, Path(folder), codec)
    good = is_as_expected(found)
    state = "followed" if found.followed else "not served" if good else "FAILED"
    detail = found.detail[:600]
    print(f"{entry.name:28} {codec:8} {state:10} {found.seconds:5.1f} s  {detail}", flush=True)
    if document:
        write_table(document, found)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="a name in the zoo")
    parser.add_argument("--table", type=Path, help="the document in whose table it is noted")
    parser.add_argument("--codec", choices=BOTH, help="instead of those that the entry has")
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)  # a folder: without wisp
    asked = parser.parse_args()
    chosen = [entry for entry in ZOO if not asked.only or entry.name in asked.only]
    if asked.alone:
        return run_alone(chosen[0], asked.alone)
    tasks = [(e, c) for e in chosen for c in ([asked.codec] if asked.codec else e.codecs)]
    good = [one(entry, codec, asked.table) for entry, codec in tasks]
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
