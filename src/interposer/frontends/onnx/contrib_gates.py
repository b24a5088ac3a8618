"""ONNX converters for ONNX Runtime's own operators that mix branches of a network by gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.core.errors import ParseError
from interposer.core.types import DataType, differ
from interposer.frontends.elementwise import ABS, SIGMOID, SIGN, SQRT
from interposer.frontends.onnx.contrib_normalization import inverse_root
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.reshaping import final_reshape_like, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import Addition, Maximum, Multiplication
from interposer.ops.matmul import BatchMatMul
from interposer.ops.reduction import Reduce, ReduceOperation

__all__: list[str] = []

_FLOAT: Final = DataType.FLOAT32
_GATES: Final = {
    "sigmoid": SIGMOID,
    "silu": Activation(ActivationFunction.SWISH, 1.0),
    "swish": Activation(ActivationFunction.SWISH, 1.0),
}


@operator("GatedAdd", domain=MICROSOFT)
def gated_add(node: Node) -> Value:
    """Convert GatedAdd: X + Y * gate, with a gate for each row."""
    x, y, gate = (node.value(index) for index in range(3))
    if not x.known.rank or gate.known.rank != x.known.rank or differ(gate.known.shape[-1], 1):
        raise ParseError(
            f"its gate has shape {gate.known.shape}, and its input {x.known.shape}; expected one for each row"
        )
    return node.result(Addition(), x, node.step(Multiplication(), y, gate))


@operator("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(node: Node) -> Value:
    """Convert GatedRMSNorm: divide equal parts of each row by their root mean squares, then scale and gate them."""
    x, scale, gate, activation = node.value(0), node.value(1), node.value(2), node.text("activation", "silu")
    if activation not in _GATES:
        raise ParseError(f"its activation is {activation!r}; expected {', '.join(_GATES)}")
    shape, group_size = x.known.shape, node.known(scale.known.num_elements, "scale's size")
    if not shape or scale.known.rank != 1 or not group_size or shape[-1] % group_size:
        raise ParseError(f"its scale has shape {scale.known.shape}, and its input {shape}; expected a part of a row")
    groups = reshaped(node, node.cast(x, _FLOAT), [*shape[:-1], shape[-1] // group_size, group_size], len(shape) - 1)
    normalized = _normalized(node, groups, node.number("epsilon", 1e-5), node.cast(scale, _FLOAT))
    gates = node.step(_GATES[activation], node.cast(gate, _FLOAT))
    gated = node.step(Multiplication(), final_reshape_like(node, normalized, x), gates)
    return node.cast(gated, x.known.dtype)


def _normalized(node: Node, x: Value, epsilon: float, scale: Value) -> Value:
    inverse_rms = inverse_root(node, x, (x.known.rank - 1,), epsilon)
    return node.step(Multiplication(), node.step(Multiplication(), x, inverse_rms), scale)


def _branches(node: Node, index: int) -> Value:
    """Return an operand of the shape (..., branches, features) as floats; num_branches divides a flat last axis."""
    operand, num_branches = node.value(index), node.integer("num_branches", 0)
    shape = operand.known.shape
    if num_branches < 0 or len(shape) < (1 if num_branches else 2) or (num_branches and shape[-1] % num_branches):
        raise ParseError(f"its input number {index} has shape {shape}, and num_branches is {num_branches}")
    floats = node.cast(operand, _FLOAT)
    return (
        reshaped(node, floats, [*shape[:-1], num_branches, shape[-1] // num_branches], len(shape) - 1)
        if num_branches
        else floats
    )


def _gates(node: Node, index: int, streams: Value) -> Value:
    """Return gates of the shapes (..., C), (..., C, 1), (..., C, H) or (..., C * H), to broadcast with the streams."""
    gates, rank = node.cast(node.value(index), _FLOAT), streams.known.rank
    branches, features = streams.known.shape[-2:]
    if gates.known.rank == rank:
        return gates
    if gates.known.rank != rank - 1:
        raise ParseError(
            f"its input number {index} has shape {gates.known.shape}; expected gates for {branches} branches"
        )
    one_per_branch = not differ(gates.known.shape[-1], branches)
    return reshaped(node, gates, [*gates.known.shape[:-1], branches, 1 if one_per_branch else features], rank - 2)


@operator("HyperConnectionPreMix", domain=MICROSOFT)
def hyper_connection_before(node: Node) -> Value:
    """Convert HyperConnectionPreMix: the sum of all branches, each times its gate, times a number."""
    streams = _branches(node, 0)
    gated = node.step(Multiplication(), streams, _gates(node, 1, streams))
    total = node.step(Reduce((streams.known.rank - 2,), keep_dims=False, operation=ReduceOperation.SUM), gated)
    factor = node.number("reduction_scale", 1.0)
    scaled = total if factor == 1 else node.step(Multiplication(), total, node.scalar_like(factor, total))
    return node.cast(scaled, node.info(0).dtype)


@operator("HyperConnectionPostMix", domain=MICROSOFT)
def hyper_connection_after(node: Node) -> Value:
    """Convert HyperConnectionPostMix: the branches, perhaps mixed by a matrix, plus a gated tensor."""
    streams, block = _branches(node, 0), node.cast(node.value(1), _FLOAT)
    *axes, features = block.known.shape
    gated_block = node.step(
        Multiplication(), _gates(node, 2, streams), reshaped(node, block, [*axes, 1, features], len(axes))
    )
    mix = node.optional(3)
    if mix is not None:
        streams = node.step(BatchMatMul(transpose_x=True), node.cast(mix, _FLOAT), streams)
    updated_streams = node.cast(node.step(Addition(), streams, gated_block), node.info(0).dtype)
    return final_reshape_like(node, updated_streams, node.value(0))


@operator("EngramGate", domain=MICROSOFT)
def engram_gate(node: Node) -> Sequence[Value]:
    """Convert EngramGate: the value times a gate, which is computed from the normalized key and query of a branch.

    The second result is normalized too.
    """
    key, query, value, key_scale, query_scale = (node.cast(node.value(index), _FLOAT) for index in range(5))
    epsilon, dtype = node.number("epsilon", 1e-5), node.info(0).dtype
    if key.known.rank != 4 or value.known.rank != 3:
        raise ParseError(
            f"its key has shape {key.known.shape} and its value {value.known.shape}; expected rank 4 and 3"
        )
    keys, queries = _normalized(node, key, epsilon, key_scale), _normalized(node, query, epsilon, query_scale)
    products = node.step(Multiplication(), keys, queries)
    sums = node.step(Reduce((3,), keep_dims=True, operation=ReduceOperation.SUM), products)
    size = node.known(key.known.shape[3], "hidden size")
    scaled_sums = node.step(Multiplication(), sums, node.scalar_like(size**-0.5, sums))
    magnitude = node.step(ABS, scaled_sums)
    magnitude_root = node.step(SQRT, node.step(Maximum(), magnitude, node.scalar_like(1e-6, magnitude)))
    signed_root = node.step(Multiplication(), node.step(SIGN, scaled_sums), magnitude_root)
    batch, length, hidden = value.known.shape
    gated = node.step(
        Multiplication(),
        node.step(_GATES["sigmoid"], signed_root),
        reshaped(node, value, [batch, length, 1, hidden], 2),
    )
    outputs = [node.cast(gated, dtype)]
    if node.wants(1):
        scale = node.cast(node.value(5), _FLOAT)
        outputs.append(node.cast(_normalized(node, gated, epsilon, scale), dtype))
    return outputs
