"""Growers of recurrent layers: LSTM, GRU and simple ones, as single steps and over sequences of different lengths."""

from __future__ import annotations

import math
from typing import Any, Final

from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.ir.graph import Value
from interposer.ops import (
    ActivationFunction,
    FusedActivation,
    GruSequence,
    Lstm,
    LstmSequence,
    RecurrentDirection,
    Reshape,
    Rnn,
    RnnSequence,
    Svdf,
    UnidirectionalSequenceLstm,
    UnidirectionalSequenceRnn,
)
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped
from interposer.testing.random_networks.random_windows import as_rank

__all__: list[str] = []

_FLOAT: Final = ("float",)
_STEPS: Final = 16
"""The maximum length of sequences for these growers, as the reference kernels compute step by step in Python."""


def _sequence(growth: Growth, value: Value) -> Value:
    """Return the value as floats of rank 3, converted and reshaped if necessary.

    Raises:
        Skipped: a dimension is too large, or the last one is 0.
    """
    x = growth.real(as_rank(growth, value, 3))
    shape = x.known.shape
    if max(shape[:2]) > _STEPS or not 0 < shape[2] <= 128:
        raise Skipped
    return x


def _weights(growth: Growth, shape: tuple[int, ...], depth: int, x: Value) -> Value:
    """Return weights whose magnitude makes sums of `depth` products with elements of `x` about 1."""
    return growth.weights(shape, min(2.0, 3.0 / (max(1.0, growth.reach(x)) * math.sqrt(max(1, depth)))), x.known.dtype)


@grower(6, LstmSequence, GruSequence, RnnSequence, kinds=_FLOAT)
def _whole_layer(growth: Growth, value: Value) -> None:
    """Add a recurrent layer of ONNX: in one direction or both, with any activation functions, states and lengths."""
    draw, x = growth.draw, _sequence(growth, value)
    op_class = growth.choice((LstmSequence, GruSequence, RnnSequence), lambda op: op)
    attributes: dict[str, Any] = {
        "direction": draw.one_of(tuple(RecurrentDirection)),
        "time_major": draw.chance(1, 2),
        "clip": draw.weighted((0.0, 1.5), (5, 1)),
    }
    op = op_class(**attributes)
    steps, batch = x.known.shape[:2] if op.time_major else x.known.shape[1::-1]
    op = _with_details(growth, op)
    depth, units = x.known.shape[2], draw.size(33)
    weight_rows, dtype = op.gates * units, x.known.dtype
    operands: list[Value | None] = [
        x,
        _weights(growth, (op.directions, weight_rows, depth), depth, x),
        growth.weights((op.directions, weight_rows, units), 1.5 / math.sqrt(units), dtype),
        growth.weights((op.directions, 2 * weight_rows), 1.0, dtype) if draw.chance(2, 3) else None,
        _lengths(growth, batch, steps) if draw.chance(1, 3) else None,
    ]
    state_shape = (op.directions, batch, units) if op.time_major else (batch, op.directions, units)
    state_count = 2 if op_class is LstmSequence else 1
    operands += [growth.weights(state_shape, 1.0, dtype) if draw.chance(1, 2) else None for _ in range(state_count)]
    if op_class is LstmSequence and draw.chance(1, 4):
        operands.append(growth.weights((op.directions, 3 * units), 1.0, dtype))
    growth.add(op, *operands, reach=1.0)
    if draw.chance(1, 3):
        _merged(growth, growth.values[-state_count - 1])


def _with_details(growth: Growth, op: Any) -> Any:
    draw = growth.draw
    if isinstance(op, GruSequence):
        op = op.replace(linear_before_reset=draw.chance(1, 2))
    if isinstance(op, LstmSequence):
        op = op.replace(input_forget=draw.chance(1, 4))
    if draw.chance(1, 4):
        functions = (ActivationFunction.SIGMOID, ActivationFunction.TANH, ActivationFunction.RELU,
                     ActivationFunction.HARD_SIGMOID, ActivationFunction.SOFTSIGN)  # fmt: skip
        count = len(op.defaults) * op.directions
        op = op.replace(activations=tuple(draw.one_of(functions) for _ in range(count)))
    return op


def _lengths(growth: Growth, batch: int, steps: int) -> Value:
    dtype = growth.draw.one_of((DataType.INT32, DataType.INT64))
    return growth.constant(growth.draw.integers((batch,), min(1, steps), steps).astype(dtype.numpy))


def _merged(growth: Growth, output: Value) -> None:
    """Add a Reshape of a recurrent layer's output from rank 4 to rank 3, so that it is a sequence again."""
    if output.known.rank == 4:
        first, second, third, fourth = output.known.shape
        growth.add(Reshape((first, second * third, fourth)), output)


_FUSED: Final = tuple(FusedActivation)


@grower(3, Rnn, UnidirectionalSequenceRnn, Svdf, kinds=_FLOAT)
def _simple(growth: Growth, value: Value) -> None:
    """Add a recurrent layer of TFLite without gates."""
    draw = growth.draw
    op_class = growth.choice((Rnn, UnidirectionalSequenceRnn, Svdf), lambda op: op)
    x = _sequence(growth, value) if op_class is UnidirectionalSequenceRnn else growth.real(as_rank(growth, value, 2))
    depth, units, dtype = x.known.shape[-1], draw.size(33), x.known.dtype
    if depth == 0:
        raise Skipped
    if op_class is Svdf:
        rank, memory = draw.integer(1, 2), draw.integer(1, 5)
        filters = (
            _weights(growth, (units * rank, depth), depth, x),
            growth.weights((units * rank, memory), 1.0, dtype),
        )
        bias = growth.weights((units,), 1.0, dtype) if draw.chance(1, 2) else None
        growth.add(Svdf(rank, draw.one_of(_FUSED)), x, *filters, bias, reach=3.0)
        return
    weights = (
        _weights(growth, (units, depth), depth, x),
        growth.weights((units, units), 1.0 / math.sqrt(units), dtype),
    )
    op: Op = Rnn(draw.one_of(_FUSED))
    batch = x.known.shape[0]
    if op_class is UnidirectionalSequenceRnn:
        op = UnidirectionalSequenceRnn(draw.one_of(_FUSED), draw.chance(1, 2))
        batch = x.known.shape[1] if op.time_major else batch
    state = growth.weights((batch, units), 1.0, dtype) if draw.chance(1, 2) else None
    growth.add(op, x, *weights, growth.weights((units,), 1.0, dtype), state, reach=3.0)


@grower(4, Lstm, UnidirectionalSequenceLstm, kinds=_FLOAT)
def _lstm(growth: Growth, value: Value) -> None:
    """Add an LSTM of TFLite, with or without an input gate, peepholes, a projection and layer normalization."""
    draw = growth.draw
    op_class = growth.choice((Lstm, UnidirectionalSequenceLstm), lambda op: op)
    x = growth.real(as_rank(growth, value, 2)) if op_class is Lstm else _sequence(growth, value)
    attributes: dict[str, Any] = {
        "cifg_enabled": draw.chance(1, 2),
        "peephole_enabled": draw.chance(1, 3),
        "projection_enabled": draw.chance(1, 4),
        "layer_norm_enabled": draw.chance(1, 5),
        "activation_func": draw.one_of((FusedActivation.TANH, FusedActivation.TANH, FusedActivation.RELU)),
        "clipping_thres_cell": draw.weighted((0.0, 2.0), (4, 1)),
    }
    if op_class is UnidirectionalSequenceLstm:
        attributes["time_major"] = draw.chance(1, 2)
    op = op_class(**attributes)
    batch = x.known.shape[1 if attributes.get("time_major") else 0]
    units = draw.size(17)
    sizes = {"I": x.known.shape[-1], "U": units, "B": batch}
    sizes["O"] = draw.size(17) if op.projection_enabled else units
    if not x.known.shape[-1]:
        raise Skipped
    operands = [x, *(_lstm_operand(growth, op, operand.name, sizes, x) for operand in op.operands[1:])]
    growth.add(op, *operands, reach=1.0)


def _lstm_operand(growth: Growth, op: Any, name: str, sizes: dict[str, int], x: Value) -> Value | None:
    """Return a value for the operand with this name of a TFLite LSTM; None if it is absent.

    It is absent if the attributes of the operator rule it out, or by chance if it is optional.

    Args:
        growth: the network.
        op: the LSTM operator.
        name: the name of the operand.
        sizes: the sizes of the LSTM by letter, such as "B" for the batch, "U" for the units and "O" for the outputs.
        x: the input, for its type and magnitude.
    """
    draw, dtype = growth.draw, x.known.dtype
    if name in ("output_state_in", "cell_state_in"):
        size = sizes["O" if name == "output_state_in" else "U"]
        return growth.weights((sizes["B"], size), 1.0, dtype) if draw.chance(1, 2) else None
    of_input_gate = name in ("input_to_input_weights", "recurrent_to_input_weights", "input_gate_bias",
                             "cell_to_input_weights", "input_layer_norm_weights")  # fmt: skip
    if of_input_gate and op.cifg_enabled:
        return None
    if name.startswith("cell_to"):
        return growth.weights((sizes["U"],), 1.0, dtype) if op.peephole_enabled else None
    if name.startswith("projection"):
        shape = (sizes["O"], sizes["U"]) if name.endswith("weights") else (sizes["O"],)
        is_absent = not op.projection_enabled or (name == "projection_bias" and draw.chance(1, 2))
        return None if is_absent else growth.weights(shape, 1.0, dtype)
    if name.endswith("layer_norm_weights"):
        return growth.weights((sizes["U"],), 1.0, dtype) if op.layer_norm_enabled else None
    if name.endswith("bias"):
        return growth.weights((sizes["U"],), 1.0, dtype)
    if name.startswith("input_to"):
        return _weights(growth, (sizes["U"], sizes["I"]), sizes["I"], x)
    return growth.weights((sizes["U"], sizes["O"]), 1.0 / math.sqrt(sizes["O"]), dtype)
