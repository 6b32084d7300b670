"""The scan of Mamba's first version, in Python: vLLM's build for CPUs lacks the operator for prompts,
and has the one for further tokens with the shapes of Mamba-2 only."""

from __future__ import annotations

from typing import Any

import torch

_softplus, _silu = torch.nn.functional.softplus, torch.nn.functional.silu


def _advance(
    state: torch.Tensor, x: torch.Tensor, time: torch.Tensor, a: torch.Tensor, b: torch.Tensor,
    c: torch.Tensor, d: torch.Tensor, z: torch.Tensor, bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """One token: the state after it, and what it gives. b and c are the same for all channels."""
    x, time = x.float(), _softplus(time.float() + bias.float())
    state = state * torch.exp(time[:, None] * a) + (time * x)[:, None] * b.float()
    return state, ((state * c.float()).sum(1) + d * x) * _silu(z.float())


def selective_scan_fwd(
    u: torch.Tensor, delta: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor,
    d: torch.Tensor, z: torch.Tensor, bias: torch.Tensor, softplus: bool, starts: torch.Tensor,
    slots: torch.Tensor, has_state: torch.Tensor, states: torch.Tensor, null_block_id: int, *_: Any,
) -> None:  # fmt: skip
    """Prompts side by side in (channels, tokens); the result is written to z."""
    assert softplus and b.shape[0] == 1
    for number, slot in enumerate(slots.tolist()):
        if slot == null_block_id:
            continue
        state = states[slot].float() if has_state[number] else torch.zeros(a.shape)
        for token in range(int(starts[number]), int(starts[number + 1])):
            state, made = _advance(
                state, u[:, token], delta[:, token], a, b[0, :, token], c[0, :, token], d,
                z[:, token], bias,
            )  # fmt: skip
            z[:, token] = made.to(z.dtype)
        states[slot] = state.to(states.dtype)


def selective_state_update(
    states: torch.Tensor, x: torch.Tensor, time: torch.Tensor, a: torch.Tensor, b: torch.Tensor,
    c: torch.Tensor, d: torch.Tensor, bias: torch.Tensor, *, z: torch.Tensor,
    state_batch_indices: torch.Tensor, out: torch.Tensor, **_: Any,
) -> None:  # fmt: skip
    """A further token of each sequence, in (sequences, channels)."""
    for row, slot in enumerate(state_batch_indices.view(-1).tolist()):
        state, made = _advance(
            states[slot].float(), x[row], time[row], a, b[row], c[row], d, z[row], bias
        )
        states[slot] = state.to(states.dtype)
        out[row] = made.to(out.dtype)


def install() -> None:
    """For this process."""
    from vllm.model_executor.layers.mamba import mamba_mixer

    torch.ops._C.selective_scan_fwd = selective_scan_fwd
    mamba_mixer.selective_state_update = selective_state_update
