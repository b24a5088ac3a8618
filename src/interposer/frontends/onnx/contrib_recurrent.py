"""ONNX converter for DynamicQuantizeLSTM, whose input and hidden states are quantized while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interposer.core.errors import ParseError
from interposer.core.types import Array, DataType, Quantization, TensorShape
from interposer.frontends.elementwise import LESS, MUL, SUB
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.onnx.recurrent import lstm_op
from interposer.frontends.reshaping import reshaped
from interposer.ir.graph import Value
from interposer.ops.elementwise import Where
from interposer.ops.gather import Gather
from interposer.ops.rearrange import Concat, Transpose
from interposer.ops.recurrent_sequence import LstmSequence, RecurrentDirection

__all__: list[str] = []


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(node: Node) -> Sequence[Value]:
    """Convert DynamicQuantizeLSTM to a layer for each direction, because the weights of each have scales of their own.

    Constant weights remain integers. The results of an empty sequence are zero, whatever its initial states are.
    """
    op = lstm_op(node)
    if not op.time_major:
        node.unsupported("its layout is 1; ONNX Runtime computes layout 0 only")
    _check_shapes(node, op)
    results = [_direction(node, op, index) for index in range(op.directions)]
    if op.directions == 1:
        return results[0]
    return [
        node.step(Concat(axis), *values) for axis, values in zip((1, 0, 0), zip(*results, strict=True), strict=True)
    ]


def _check_shapes(node: Node, op: LstmSequence) -> None:
    units = _num_units(node)
    expected_shapes = {1: (node.info(0).shape[-1], 4 * units), 2: (units, 4 * units), 3: (8 * units,), 7: (3 * units,)}
    for index, sizes in expected_shapes.items():
        operand, expected = node.optional(index), TensorShape((op.directions, *sizes))
        if operand is not None and not expected.accepts(operand.known.shape):
            raise ParseError(f"its input number {index} has shape {operand.known.shape}; expected {expected}")
    _check_scales(node, TensorShape((op.directions,)), TensorShape((op.directions, 4 * units)))


def _check_scales(node: Node, *expected: TensorShape) -> None:
    """Raise `ParseError` if scales or zero points are not one for each direction, or for each of its columns."""
    for index in (8, 9, 10, 11):
        operand = node.optional(index)
        if operand is not None and not any(shape.accepts(operand.known.shape) for shape in expected):
            shapes = " or ".join(map(str, expected))
            raise ParseError(f"its input number {index} has shape {operand.known.shape}; expected {shapes}")


def _num_units(node: Node) -> int:
    shape = node.info(2).shape
    if len(shape) != 3 or node.info(0).rank != 3:
        raise ParseError(f"its input has shape {node.info(0).shape}, its recurrent weights {shape}; expected rank 3")
    return node.known(shape[1], "number of units")


def _direction(node: Node, op: LstmSequence, index: int) -> list[Value]:
    """Return the hidden states of all steps (T, 1, B, H), and the last hidden and cell states (1, B, H)."""
    weights = (_weights(node, 1, 8, index), _weights(node, 2, 10, index))
    bias, states = _of_direction(node, 3, index), _states(node, index)
    layer = _op_of_direction(op, index)
    outputs, *last_states = node.steps(layer, node.value(0), *weights, bias, node.optional(4), *states)
    return [outputs, *(_unless_empty(node, state) for state in last_states)]


def _states(node: Node, index: int) -> list[Value | None]:
    """Return the initial hidden and cell states and the peephole weights of a direction; None for absent ones."""
    return [_of_direction(node, operand, index) for operand in (5, 6, 7)]


def _op_of_direction(op: LstmSequence, index: int) -> LstmSequence:
    count = len(op.defaults)
    reverse = op.direction.reversals[index]
    own_attributes: dict[str, Any] = {
        name: getattr(op, name)[index * count : (index + 1) * count]
        for name in ("activations", "activation_a", "activation_b")
    }
    direction = RecurrentDirection.REVERSE if reverse else RecurrentDirection.FORWARD
    return op.replace(direction=direction, dynamic_quantization=True, **own_attributes)


def _of_direction(node: Node, operand: int, index: int) -> Value | None:
    """Return the part of an operand that belongs to a direction; its first axis, of the directions, has size 1."""
    value = node.optional(operand)
    if value is None or value.known.shape[0] == 1:
        return value
    if value.constant is not None:
        return node.constant(value.constant[index : index + 1])
    return node.step(Gather(0), value, node.constant(np.array([index])))


def _unless_empty(node: Node, state: Value) -> Value:
    """Return a state (1, B, H) with zeros for sequences without steps."""
    lengths = node.optional(4)
    if lengths is None:
        return state
    has_steps = reshaped(node, node.step(LESS, node.scalar_like(0, lengths), lengths), [1, -1, 1])
    return node.step(Where(), has_steps, state, node.scalar_like(0, state))


# --- weights ----------------------------------------------------------------------------------------------------------


def _weights(node: Node, operand: int, scale_operand: int, index: int) -> Value:
    """Return the weights of a direction (1, 4 * H, K): a quantized constant, or floats if an operand is computed."""
    numbers = (operand, scale_operand, scale_operand + 1)
    node.value(operand), node.value(scale_operand)
    values, scale, zero_point = (_of_direction(node, number, index) for number in numbers)
    assert values is not None and scale is not None
    quantization = _quantization(scale, zero_point)
    if values.constant is None or quantization is None:
        return _dequantized(node, values, scale, zero_point)
    return node.constant(np.ascontiguousarray(values.constant.transpose(0, 2, 1)), quantization)


def _quantization(scale: Value, zero_point: Value | None) -> Quantization | None:
    """Return the quantization of weights (1, 4 * H, K); None if it is computed, or has scales that are not positive."""
    scales = scale.constant
    zero_points = np.zeros(1, np.int64) if zero_point is None else zero_point.constant
    if scales is None or zero_points is None or not np.all((scales > 0) & np.isfinite(scales)):
        return None
    return _by_column(scales.reshape(-1), zero_points.reshape(-1))


def _by_column(scales: Array, zero_points: Array) -> Quantization:
    if len(scales) == len(zero_points) == 1:
        return Quantization(float(scales[0]), int(zero_points[0]))
    count = max(len(scales), len(zero_points))
    all_scales, all_zero_points = (np.broadcast_to(numbers, count).tolist() for numbers in (scales, zero_points))
    return Quantization(all_scales, all_zero_points, 1)


def _dequantized(node: Node, values: Value, scale: Value, zero_point: Value | None) -> Value:
    """Return weights (1, K, 4 * H) as floats (1, 4 * H, K); the scale is one number or one for each column."""
    real = node.cast(values, DataType.FLOAT32)
    if zero_point is not None:
        real = node.step(SUB, real, reshaped(node, node.cast(zero_point, DataType.FLOAT32), [1, 1, -1]))
    return node.step(Transpose((0, 2, 1)), node.step(MUL, real, reshaped(node, scale, [1, 1, -1])))
