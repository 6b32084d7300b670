"""Convolutions as vLLM has them on most CPUs.

On those with AVX-512 BF16 it packs them, and such a server is refused (doc/engines.md). So that the
same models are followed wherever tests run, importing this hides it from vLLM in this process. AMX
is hidden with it: vLLM then loads a build without operators for that.
"""

from __future__ import annotations

import torch

torch.cpu._is_avx512_bf16_supported = lambda: False
torch.cpu._is_amx_tile_supported = lambda: False
torch.cpu._is_amx_fp16_supported = lambda: False
