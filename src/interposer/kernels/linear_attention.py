"""The kernel of linear attention, which computes one step of the sequence after the other."""

from __future__ import annotations

import math

import numpy as np

from interposer.core.types import Array
from interposer.kernels.real import real
from interposer.kernels.reference import kernel
from interposer.kernels.table import KernelInfo
from interposer.ops.linear_attention import LinearAttention

__all__: list[str] = []


@kernel(LinearAttention)
def linear_attention(
    op: LinearAttention, query: Array, key: Array, value: Array, past_state: Array | None,
    decay: Array | None, beta: Array | None, *, info: KernelInfo,
) -> tuple[Array, Array]:  # fmt: skip
    """Compute `LinearAttention` step by step; return the output and the state after the last step.

    Both are computed in float32, or in float64 for float64 inputs. The state is not rounded to the operator's type
    between the steps; the caller converts the two results to the types of the outputs.
    """
    batch, steps, _ = query.shape
    groups = op.kv_num_heads
    q = _split(real(query, info.at(0)), groups, op.q_num_heads // groups)
    k, v = _split(real(key, info.at(1)), groups), _split(real(value, info.at(2)), groups)
    decay_factors = None if decay is None else _split(np.exp(real(decay, info.at(4))), groups)
    write_rates = None if beta is None else real(beta, info.at(5))[..., np.newaxis]
    state = np.zeros((batch, groups, k.shape[3], v.shape[3]), q.dtype)
    state = state if past_state is None else state + real(past_state, info.at(3))
    scale = 1 / math.sqrt(q.shape[4]) if op.scale is None else op.scale
    output = np.empty((*q.shape[:4], v.shape[3]), q.dtype)
    for step in range(steps):
        state = state if decay_factors is None else state * decay_factors[:, step, :, :, np.newaxis]
        recalled = np.einsum("bgd,bgde->bge", k[:, step], state)
        update = v[:, step] if write_rates is None else write_rates[:, step] * (v[:, step] - recalled)
        state = state + k[:, step, :, :, np.newaxis] * update[:, :, np.newaxis]
        output[:, step] = scale * np.einsum("bgrd,bgde->bgre", q[:, step], state)
    return output.reshape(batch, steps, op.q_num_heads * v.shape[3]), state


def _split(x: Array, *heads: int) -> Array:
    """Split the last axis into heads: (B, T, heads * D) becomes (B, T, heads, D), where `heads` may be several axes."""
    return x.reshape(*x.shape[:2], *heads, x.shape[2] // math.prod(heads))
