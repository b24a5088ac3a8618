"""Cases of linear attention, causal convolutions, and mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from tests.frontends.onnx.contrib.case import Case, Operand, fed, fixed, forms, integers, normal

FLOAT = np.float32


def numbers(*shape: int, seed: int = 0) -> Operand:
    return fed(normal(shape, seed=seed))


def negative(*shape: int) -> Operand:
    return fed(-np.abs(normal(shape, seed=8)))


def rate(*shape: int) -> Operand:
    return fed(0.3 * np.abs(normal(shape, seed=9)))


def linear(label: str, *rest: Operand | None, heads: int = 2, rule: str = "linear", **attributes: Any) -> Case:
    operands = [numbers(2, 4, 4 * heads), numbers(2, 4, 8, seed=1), numbers(2, 4, 12, seed=2), *rest]
    given = {"q_num_heads": heads, "kv_num_heads": 2, "update_rule": rule, **attributes}
    return Case("LinearAttention", label, operands, (FLOAT, FLOAT), given)


def linear_attentions() -> Iterator[Case]:
    state = numbers(2, 2, 4, 6, seed=3)
    for past in (None, state):
        title = "" if past is None else " with a state"
        yield linear(f"linear{title}", past)
        yield linear(f"gated{title}", past, negative(2, 4, 2), rule="gated")
        yield linear(f"gated rows{title}", past, negative(2, 4, 8), rule="gated")
        yield linear(f"delta{title}", past, None, rate(2, 4, 2), rule="delta")
        yield linear(f"gated delta{title}", past, negative(2, 4, 2), rate(2, 4, 1), rule="gated_delta")
    yield from forms(linear("more queries", heads=4))
    yield linear("fewer queries", heads=1)
    yield linear("scale", scale=0.3)
    yield linear("chunks", chunk_size=2)
    yield linear("unused gates", None, negative(2, 4, 2), rate(2, 4, 2))
    yield linear("missing gate", None, None, rate(2, 4, 2), rule="gated_delta")
    yield linear("several states", numbers(3, 2, 2, 4, 6), state_window=3)
    yield linear("unknown rule", rule="none")


def convolved(label: str, x: Operand, *rest: Operand | None, **attributes: Any) -> Case:
    operands = [x, fixed(normal((3, 1, 4), seed=1)), *rest]
    return Case("CausalConvWithState", label, operands, (FLOAT, FLOAT), attributes)


def convolutions() -> Iterator[Case]:
    x, bias, state = numbers(2, 3, 5), fixed(normal((3,), seed=2)), numbers(2, 3, 3, seed=3)
    yield from forms(convolved("plain", x))
    yield convolved("bias and state", x, bias, state)
    for activation in ("none", "silu", "swish", "relu"):
        yield convolved(activation, x, bias, state, activation=activation)
    yield convolved("one step", numbers(2, 3, 1), bias, state)
    yield convolved("dilation", x, bias, dilation=2)
    yield convolved("dilation and state", x, bias, numbers(2, 3, 6, seed=3), dilation=2)
    yield convolved("channels last", numbers(2, 5, 3), bias, state, channels_last=1)
    yield convolved("channels last, rank 4", numbers(2, 5, 3, 1), bias, numbers(2, 3, 3, 1), channels_last=1)
    yield convolved("channels last, dilation", numbers(2, 5, 3), bias, channels_last=1, dilation=3, activation="silu")
    yield convolved("several states", x, bias, numbers(2, 2, 3, 3), state_window=2)
    two = [numbers(2, 3, 5, 6), fixed(normal((3, 1, 2, 3)))]
    yield Case("CausalConvWithState", "two dimensions", two, (FLOAT, FLOAT), {"ndim": 2})


def gates() -> Iterator[Case]:
    a, bias, scale = numbers(2, 4, 3), fixed(normal((3,))), fixed(normal((3,), seed=1))
    yield from forms(Case("LinearAttentionGate", "decay", [a, bias, scale]))
    yield Case("LinearAttentionGate", "decay and beta", [a, bias, scale, numbers(2, 4, 3, seed=2)], (FLOAT, FLOAT))
    yield Case("LinearAttentionGate", "beta without b", [a, bias, scale], (FLOAT, FLOAT))
    yield Case("LinearAttentionGate", "large", [fed(40 * a.array), bias, scale])
    half = [fed(a.array, np.float16), bias, scale, fed(a.array, np.float16)]
    yield Case("LinearAttentionGate", "float16", half, (np.float16, np.float16))


def experts(label: str, *rest: Operand | None, **attributes: Any) -> Case:
    return Case("MoE", label, [numbers(5, 8), numbers(5, 4, seed=1), *rest], (), {"k": 2, **attributes}, tolerance=5e-5)


def mixtures() -> Iterator[Case]:
    first, second = fixed(normal((4, 12, 8), seed=2)), fixed(normal((4, 8, 12), seed=3))
    biases = [fixed(normal((4, 12), seed=4)), fixed(normal((4, 8), seed=5))]
    for k in (1, 2, 4):
        for normalized in (0, 1):
            yield experts(
                f"k {k}, normalized {normalized}", first, None, second, k=k, normalize_routing_weights=normalized
            )
    yield from forms(experts("biases", first, biases[0], second, biases[1]))
    for activation in ("relu", "gelu", "silu", "identity", "tanh"):
        yield experts(activation, first, biases[0], second, biases[1], activation_type=activation)
    batch = experts("batch", first, None, second)
    yield replace(batch, inputs=[numbers(1, 5, 8), *batch.inputs[1:]])
    wide = [fixed(normal((4, 24, 8), seed=2)), fixed(normal((4, 24), seed=4)), second, biases[1]]
    swiglu = {"activation_type": "swiglu", "swiglu_fusion": 1}
    yield experts("swiglu", *wide, **swiglu)
    yield experts("limited swiglu", *wide, **swiglu, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=2.0)
    yield experts("swiglu of halves", *wide, activation_type="swiglu", swiglu_fusion=2)
    yield experts("third layer", first, None, second, None, first, activation_type="silu")
    yield replace(experts("sparse mixer", first, None, second, use_sparse_mixer=1), refused=True)
    yield experts("more experts than there are", first, None, second, k=5)


def few_bits(shape: tuple[int, ...], bits: int, seed: int) -> Operand:
    return fixed(integers((*shape[:-1], shape[-1] * bits // 8), np.uint8, seed, 0, 255))


def quantized_experts(
    label: str, bits: int, blocks: int = 0, points: int = 0, bias: int = 0, **attributes: Any
) -> Case:
    hidden, wide = 64, 96
    rows = 2 * wide if attributes.get("activation_type") == "swiglu" else wide
    operands: list[Operand | None] = [numbers(5, hidden), numbers(5, 4, seed=1)]
    zeros: list[Operand | None] = []
    for seed, (n, k) in enumerate(((rows, hidden), (hidden, wide)), 2):
        scales = (4, n, k // blocks) if blocks else (4, n)
        factors = fixed(np.random.default_rng(seed).uniform(0.01, 0.02, scales).astype("f4") * (16 / 2**bits))
        operands += [few_bits((4, n, k), bits, seed), factors, fixed(normal((4, n), seed=seed)) if bias else None]
        packed = (4, n, -(-(k // blocks) * bits // 8)) if blocks else (4, n * bits // 8)
        zeros.append(fixed(integers(packed, np.uint8, seed + 9, 0, 255)) if points else None)
    more = {"k": 2, "expert_weight_bits": bits, **({"block_size": blocks} if blocks else {}), **attributes}
    return Case(
        "QMoE",
        label,
        [*operands, None, None, None, *zeros],
        ["f4"],
        more,
        tolerance=0.02 if bits == 8 and blocks else 1e-3,
    )


def quantized_mixtures() -> Iterator[Case]:
    for bits, blocks, points in product((2, 4, 8), (0, 16, 32), (0, 1)):
        yield quantized_experts(f"{bits} {blocks} {points}", bits, blocks, points)
    for activation in ("relu", "gelu", "silu", "identity"):
        yield quantized_experts(activation, 4, 32, bias=1, activation_type=activation)
    for k, normalized in ((1, 0), (1, 1), (3, 0), (3, 1)):
        yield quantized_experts(f"k {k} {normalized}", 4, k=k, normalize_routing_weights=normalized)
    swiglu = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0}
    yield from forms(quantized_experts("swiglu", 4, 32, bias=1, **swiglu, swiglu_limit=7.0))
    mixed = quantized_experts("router weights", 4, 16)
    mixed = replace(
        mixed, inputs=[*mixed.inputs, *[None] * (14 - len(mixed.inputs)), fed(np.abs(normal((5, 4), seed=8)))]
    )
    yield mixed
    yield replace(
        mixed, label="normalized router weights", attributes=mixed.attributes | {"normalize_routing_weights": 1}
    )
    batch = quantized_experts("batch", 8, 32, 1)
    yield replace(batch, inputs=[numbers(1, 5, 64), *batch.inputs[1:]])
    yield quantized_experts("other bits", 4, 16, fc1_expert_weight_bits=4, fc2_expert_weight_bits=4)
    yield replace(quantized_experts("fp4", 4, 16, quant_type="fp4"), refused=True)


CASES = [*quantized_mixtures(), *linear_attentions(), *convolutions(), *gates(), *mixtures()]
