"""The scan of Mamba's first version, in Python: vLLM's build for CPUs lacks the operator."""

from __future__ import annotations

from typing import Any

import torch


def selective_scan_fwd(
    u: torch.Tensor, delta: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor,
    d: torch.Tensor | None, z: torch.Tensor | None, delta_bias: torch.Tensor | None,
    delta_softplus: bool, starts: torch.Tensor, slots: torch.Tensor, has_state: torch.Tensor,
    states: torch.Tensor, null_block_id: int, *_: Any,
) -> None:  # fmt: skip
    """Sequences side by side in (channels, tokens); the result is written to z, else to delta."""
    groups = b.shape[0]
    for number, slot in enumerate(slots.tolist()):
        if slot == null_block_id:
            continue
        state = states[slot].float() if has_state[number] else torch.zeros(a.shape)
        for token in range(int(starts[number]), int(starts[number + 1])):
            wide = u.shape[0] // groups
            into, out = (
                every[:, :, token].float().repeat_interleave(wide, 0) for every in (b, c)
            )
            time = delta[:, token].float()
            time = time if delta_bias is None else time + delta_bias.float()
            time = torch.nn.functional.softplus(time) if delta_softplus else time
            x = u[:, token].float()
            state = state * torch.exp(time[:, None] * a) + (time * x)[:, None] * into
            made = (state * out).sum(1)
            made = made if d is None else made + d * x
            if z is None:
                delta[:, token] = made.to(delta.dtype)
            else:
                gate = torch.nn.functional.silu(z[:, token].float())
                z[:, token] = (made * gate).to(z.dtype)
        states[slot] = state.to(states.dtype)


def install() -> None:
    """For this process."""
    torch.ops._C.selective_scan_fwd = selective_scan_fwd
