"""An engine of vLLM in this process that follows a run, held against one that loads an export."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from vllm_server import ENVIRONMENT

with contextlib.suppress(ImportError):  # tests that import this are skipped without torch
    import plain_convolutions  # noqa: F401  # before vLLM, which chooses its build as it is loaded

os.environ.update(ENVIRONMENT)
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"
# Still without AMX; torch wants no less for products of fp8 on CPUs that have it.
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"

PROMPTS = [[7, 11, 13, 17, 19], [3, 5, 101, 90, 64, 2, 33]]


class Engine:
    """vllm.LLM of a folder; with `run`, it follows that."""

    def __init__(self, folder: Path, run: Any = None, **options: Any) -> None:
        from vllm import LLM

        if run is not None:
            options["weight_transfer_config"] = {"backend": "wisp"}
            options["additional_config"] = {"wisp": {"run": str(run), "poll": 0.2}}
        self.llm = LLM(
            str(folder), skip_tokenizer_init=True, max_model_len=64, enforce_eager=True,
            max_num_seqs=4, max_num_batched_tokens=64, **{"dtype": "bfloat16", **options},
        )  # fmt: skip

    def answers(self) -> list[Any]:
        """Tokens and the logarithms of their probabilities, for each prompt."""
        from vllm import SamplingParams

        sampling = SamplingParams(
            temperature=0, max_tokens=8, logprobs=3, detokenize=False, ignore_eos=True
        )
        found = []
        for prompt in PROMPTS:
            answer = self.llm.generate(
                [{"prompt_token_ids": prompt}], sampling, use_tqdm=False
            )[0].outputs[0]
            tops = [{t: p.logprob for t, p in top.items()} for top in answer.logprobs]
            found.append((list(answer.token_ids), tops))
        return found

    def close(self) -> None:
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm


def memory_of(model: Any) -> dict[str, Any]:
    """Every tensor that hangs on a module, whether it is registered or not."""
    import torch

    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        held = {**vars(module), **module._parameters, **module._buffers}
        for name, value in held.items():
            if isinstance(value, torch.Tensor) and value.numel() and "cache" not in name:
                found[f"{path}.{name}"] = value.detach().reshape(-1).view(torch.uint8).clone()
    return found
