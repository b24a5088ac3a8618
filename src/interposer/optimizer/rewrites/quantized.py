"""Rewrites of float layers between Dequantize and Quantize to quantized layers, as exporters intend.

There are two kinds of rewrites:

- Layers that move or select elements do the same with quantized values. The results are equal bit by bit.
- Layers that add and multiply compute exact sums of integers, and round the results half to even
  (`Requantization.HALF_TO_EVEN`). Float32 rounds its sums first, and so may give the neighboring step. Layers that
  compute single elements give the same as in float32, bit by bit.

The second kind requires a Quantize that rounds half to even, as ONNX's does. In other formats, a Dequantize before a
layer means that the layer computes with float values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.core.schema import Op
from interposer.core.traits import ResultQuantization, Role, Trait
from interposer.core.types import DataType, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.kernels import refusals
from interposer.kernels.fixedpoint import dequantize
from interposer.ops import (
    Activation,
    ActivationFunction,
    BatchMatMul,
    Concat,
    Constant,
    Dequantize,
    ElementwiseBinary,
    FullyConnected,
    Mean,
    Permute,
    Pooling2d,
    Quantize,
    Reduce,
    Requantization,
    Reshape,
    RoundingMethod,
    Slice,
    Splitter,
    Transpose,
)
from interposer.ops.elementwise import BinaryOperation
from interposer.ops.pooling import PoolingAlgorithm
from interposer.ops.reduction import ReduceOperation
from interposer.optimizer.rewrites.constants import fold_constants, folded_result
from interposer.rewriting.pattern import New, Replacement, above, above_with, constant, gives, info_of, rewrite

__all__ = ["INTEGERS", "computing_layer", "dequantize_later", "integer_candidates"]

Rule: TypeAlias = Callable[[Any, Layer, TensorInfo], New | None]

_DEQUANTIZE: Final = Dequantize()
EIGHT_BITS: Final = frozenset({DataType.INT8, DataType.UINT8})
_TYPES: Final = EIGHT_BITS | {DataType.INT16}


def quantized_source(value: Value | None) -> Value | None:
    """Return the quantized values from which a float32 value was dequantized, or None."""
    source = above(value, Dequantize)
    return source.layer.inputs[0] if source and source.op.dtype is DataType.FLOAT32 else None


def computing_layer(layer: Layer) -> Layer:
    """Return the layer that computes what a rewrite to quantized values replaces.

    This is the producer of the input if `layer` is a Quantize, else `layer` itself.
    """
    producer = layer.inputs[0].producer if layer.inputs and layer.inputs[0] else layer
    return producer if isinstance(layer.op, Quantize) else layer


# --- what moves or chooses --------------------------------------------------------------------------------------------


@rewrite(having=Trait.MOVES | Trait.CHOOSES)
def dequantize_later(op: Op, layer: Layer) -> Replacement:
    """Replace a Dequantize before a layer that moves or selects elements by one after it.

    The layer then works on the quantized values, which are smaller. It must not repeat them. Of constant weights, it is
    replaced by the moved constant.
    """
    data_index = _data(layer)
    quantized = None if data_index is None else quantized_source(layer.inputs[data_index])
    if data_index is None or quantized is None or not _commutes(op, quantized.known):
        return None
    inputs = [*layer.inputs[:data_index], quantized, *layer.inputs[data_index + 1 :]]
    moved_info = _moved(op, quantized.known, inputs)
    if moved_info is None or moved_info.shape != layer.output.known.shape:
        return None
    if not quantized.is_constant and moved_info.num_elements > quantized.known.num_elements:
        return None
    stored = folded_result(op, inputs, moved_info) if quantized.is_constant else None
    if stored is not None:
        return New(_DEQUANTIZE, [New(constant(stored, moved_info.quantization).op, like=layer)])
    return New(_DEQUANTIZE, [New(op, inputs, info=moved_info, like=layer)])


def _data(layer: Layer) -> int | None:
    """Return the index of the only data operand of a layer with one result; None for other layers."""
    places = layer.op.inputs_of(Role.DATA, len(layer.inputs))
    return places[0] if len(places) == len(layer.outputs) == 1 else None


def _commutes(op: Op, quantized_info: TensorInfo) -> bool:
    """Return True if an operator that moves or selects elements does the same with quantized values."""
    if Trait.MOVES in op.traits:
        return Trait.FILLS not in op.traits
    return quantized_info.dtype in _TYPES and _one_scale(quantized_info)


def _moved(op: Op, quantized_info: TensorInfo, inputs: Sequence[Value | New | None]) -> TensorInfo | None:
    """Return the info of the result if an operator works on quantized values instead of floats.

    `quantized_info` is the info of the quantized values, which are among `inputs`. None if their quantization would
    change or become invalid, or if there is no kernel for their type.
    """
    info = gives(op, inputs)
    if info is None or info.quantization is None:
        return None
    if refusals(op, [info_of(value) for value in inputs], [info]):
        return None
    if _one_scale(quantized_info):
        return info if info.quantization == quantized_info.quantization else None
    if isinstance(op, Transpose | Permute):
        return info
    return info if isinstance(op, Reshape) and _keeps_first_axis(quantized_info, info) else None


def _keeps_first_axis(input_info: TensorInfo, output_info: TensorInfo) -> bool:
    return (
        input_info.quantization == output_info.quantization
        and input_info.quantization is not None
        and input_info.quantization.axis == 0
    )


@rewrite(having=Trait.MOVES)
def move_stored_weights(op: Op, layer: Layer) -> Replacement:
    """Replace a layer that moves constant quantized weights, such as a Transpose, by the moved constant.

    The weights are then dequantized after the move, and stay small in memory.
    """
    data_index = _data(layer)
    quantized = None if data_index is None else layer.inputs[data_index]
    return fold_constants(layer) if quantized is not None and quantized.known.is_quantized else None


@rewrite(Quantize)
def quantize_before_clamping(op: Quantize, layer: Layer) -> Replacement:
    """Replace a clamp and a Quantize by a clamp of quantized values; no clamp is needed if its bounds span the type."""
    clamp, info = above(layer.inputs[0], Activation), layer.output.known
    if clamp is None or not _alone(clamp.layer) or info.dtype not in _TYPES or not _one_scale(info):
        return None
    if clamp.op.function not in _CLAMPS or _rule(clamp.layer.values[0]) is None:
        return None
    low, high = (0.0, np.inf) if clamp.op.function is ActivationFunction.RELU else (clamp.op.b, clamp.op.a)
    limits = np.iinfo(info.dtype.numpy)
    quantized_bounds = [bound / info.scale + info.zero_point for bound in (low, high)]
    if any(bound % 1 == 0.5 for bound in quantized_bounds):
        return None
    if quantized_bounds[0] < limits.min + 0.5 and quantized_bounds[1] > limits.max - 0.5:
        return New(op, clamp.layer.inputs)
    return New(clamp.op, [New(op, clamp.layer.inputs, info=info, like=layer)], like=clamp.layer)


@rewrite(Quantize)
def quantize_before_moving(op: Quantize, layer: Layer) -> Replacement:
    """Move a Quantize before a layer that moves elements, so that the producer may be computed in integers.

    This is done only if the producer has a rule to compute it in integers.
    """
    mover, info = above_with(layer.inputs[0], Trait.MOVES), layer.output.known
    data_index = None if mover is None or Trait.FILLS in mover.op.traits else _data(mover.layer)
    if mover is None or data_index is None or not _alone(mover.layer) or not _one_scale(info):
        return None
    real = mover.layer.inputs[data_index]
    if real is None or _rule(real) is None:
        return None
    quantized_info = real.known.with_dtype(info.dtype).with_quantization(info.quantization)
    first = New(op, [real], info=quantized_info, like=layer)
    inputs = [*mover.layer.inputs[:data_index], first, *mover.layer.inputs[data_index + 1 :]]
    return None if _moved(mover.op, quantized_info, inputs) is None else New(mover.op, inputs, like=mover.layer)


@rewrite(Quantize)
def slice_stored_integers(op: Quantize, layer: Layer) -> Replacement:
    """Replace Dequantize, Splitter and Quantize by a Slice of the quantized values.

    The Quantize must restore the type and quantization of the dequantized tensor.
    """
    value = layer.inputs[0]
    splitter = above(value, Splitter)
    quantized = quantized_source(splitter.layer.inputs[0]) if splitter else None
    if splitter is None or quantized is None or value is None or not _one_scale(quantized.known):
        return None
    if (quantized.known.dtype, quantized.known.quantization) != (
        layer.output.known.dtype,
        layer.output.known.quantization,
    ):
        return None
    begin, size = [0] * quantized.known.rank, [-1] * quantized.known.rank
    begin[splitter.op.axis], size[splitter.op.axis] = (
        sum(splitter.op.sizes[: value.index]),
        splitter.op.sizes[value.index],
    )
    return New(Slice(tuple(begin), tuple(size)), [quantized]) if min(splitter.op.sizes) >= 0 else None


# --- what computes ----------------------------------------------------------------------------------------------------


@rewrite(Quantize)
def compute_in_integers(op: Quantize, layer: Layer) -> Replacement:
    """Replace a float layer between Dequantize and Quantize by a layer that computes on the quantized values.

    Only float32 layers of operators with a rule are replaced, and only if the Quantize alone reads their result.
    """
    inner_layer, output_info = layer.values[0].producer, layer.output.known
    rule = _rule(layer.values[0])
    if rule is None or not _alone(inner_layer) or op.rounding is not RoundingMethod.HALF_TO_EVEN:
        return None
    if (
        output_info.dtype not in _TYPES
        or not _one_scale(output_info)
        or inner_layer.output.known.dtype is not DataType.FLOAT32
    ):
        return None
    integer_layer = rule(inner_layer.op, inner_layer, output_info)
    if integer_layer is None or gives(integer_layer.op, integer_layer.inputs) is None:
        return None
    return New(integer_layer.op, integer_layer.inputs, like=inner_layer)


def integer_candidates(layer: Layer) -> Iterator[tuple[New, TensorInfo]]:
    """Yield layers that rewrites may create for a Quantize, each with the info of its output.

    These are the quantized layer in place of the producer of its input, and the Quantize and the clamps themselves if
    clamps between the two are moved after the Quantize. The rewrites may still decide otherwise.
    """
    info, clamp = layer.output.known, above(layer.values[0], Activation)
    if info.dtype not in _TYPES or not _one_scale(info):
        return
    while clamp is not None and clamp.op.function in _CLAMPS:
        yield New(clamp.op, [New(layer.op, clamp.layer.inputs, info=info)]), info
        layer, clamp = clamp.layer, above(clamp.layer.values[0], Activation)
    producer = layer.values[0].producer
    rule = _rule(layer.values[0])
    integer_layer = None if rule is None or len(producer.outputs) != 1 else rule(producer.op, producer, info)
    if integer_layer is not None and gives(integer_layer.op, integer_layer.inputs) is not None:
        yield integer_layer, producer.output.known.with_dtype(info.dtype).with_quantization(info.quantization)


def _rule(value: Value) -> Rule | None:
    """Return the function that creates a quantized layer in place of the float layer that produces a value.

    None if there is none for its operator. The function takes the operator, the layer and the info of the quantized
    output.
    """
    op, count = value.producer.op, len(value.producer.inputs)
    rule = _RULE_OF_KIND[type(op)]
    return _weighted if rule is None and count in (2, 3) and _is_weighted(op, count) else rule


class _RuleOfKind(dict[type[Op], Rule | None]):
    """The rule of each type of operator, which is that of a base class if need be; found when it is first asked for."""

    def __missing__(self, kind: type[Op]) -> Rule | None:
        rule = self[kind] = next((_RULES[base] for base in kind.__mro__ if base in _RULES), None)
        return rule


_RULE_OF_KIND: Final = _RuleOfKind()


@lru_cache
def _is_weighted(op: Op, count: int) -> bool:
    """Return True if an operator multiplies its first operand by its second one, the weights, and adds a bias.

    `count` is the number of inputs, 2 or 3. The cache retains the operators, so it must not be asked about constants.
    """
    if len(op.operands) < count:
        return False
    roles = [op.role(index) for index in range(count)]
    if roles not in ([Role.DATA, Role.WEIGHTS], [Role.DATA, Role.WEIGHTS, Role.BIAS]):
        return False
    return op.result_quantization(DataType.INT8) is ResultQuantization.OBSERVED


def _alone(layer: Layer) -> bool:
    return len(layer.outputs) == 1 and len(layer.output.uses) == 1


def _one_scale(info: TensorInfo) -> bool:
    return info.quantization is not None and not info.quantization.per_axis


def _operand(value: Value | None, output_info: TensorInfo) -> Value | None:
    """Return the quantized values from which a float operand was dequantized.

    None if it was not, or if they have another type than `output_info`, the result's info, or one scale per channel.
    """
    quantized = quantized_source(value)
    return (
        quantized
        if quantized is not None and quantized.known.dtype is output_info.dtype and _one_scale(quantized.known)
        else None
    )


def _all_operands(op: Op, layer: Layer, output_info: TensorInfo) -> New | None:
    operands = [_operand(value, output_info) for value in layer.inputs]
    return _rounded(op, operands) if all(operand is not None for operand in operands) else None


def _joined(op: Concat, layer: Layer, output_info: TensorInfo) -> New | None:
    """Return a Concat of quantized values, of which those with another quantization than the output are requantized."""
    operands = [_operand(value, output_info) for value in layer.inputs]
    if any(operand is None for operand in operands):
        return None
    operands_and_values = zip(operands, layer.values, strict=True)
    return New(
        op,
        [
            quantized if _is_like(quantized, output_info) else _requantized(real, output_info)
            for quantized, real in operands_and_values
        ],
    )


def _is_like(quantized: Value | None, output_info: TensorInfo) -> bool:
    return quantized is not None and quantized.known.quantization == output_info.quantization


def _requantized(real: Value, output_info: TensorInfo) -> New:
    info = TensorInfo(real.known.shape, output_info.dtype, output_info.quantization)
    return New(Quantize(output_info.dtype, RoundingMethod.HALF_TO_EVEN), [real], info=info)


def _weighted(op: Op, layer: Layer, output_info: TensorInfo) -> New | None:
    """Return a quantized layer for an operator with an input, constant weights and an optional constant bias.

    `op` is the operator of the new layer, `layer` the float layer, and `output_info` the info of the quantized result.
    None if an operand is not suitable.
    """
    x, weights = _operand(layer.inputs[0], output_info), _weights(layer.inputs[1])
    if x is None or weights is None or weights.quantization is None:
        return None
    stored_weights = New(weights, name=layer.values[1].name)
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    if bias is None:
        return _rounded(op, [x, stored_weights])
    real_bias = _bias(bias)
    return None if real_bias is None else _rounded(op, [x, stored_weights, real_bias])


def _rounded(op: Op, operands: Sequence[Value | New | None]) -> New:
    """Return a layer of an operator on quantized values that rounds its results half to even."""
    return New(_half_to_even(op), operands)


@lru_cache
def _half_to_even(op: Op) -> Op:
    """Return the operator with results that are rounded half to even; equal operators give the same object."""
    return op.replace(requantization=Requantization.HALF_TO_EVEN)


def _weights(value: Value | None) -> Constant | None:
    """Return a Constant with the quantized values from which constant weights were dequantized.

    None unless they have 8 bits and all the same zero point.
    """
    quantized = quantized_source(value)
    if quantized is None or quantized.constant is None or quantized.known.dtype.bits > 8:
        return None
    quantization = quantized.known.quantization
    assert quantization is not None
    if len(quantization.distinct_zero_points) > 1:
        return None
    numpy_dtype = np.uint8 if str(quantized.known.dtype).startswith("uint") else np.int8
    stored_op = quantized.producer.op
    if isinstance(stored_op, Constant) and stored_op.value.dtype == numpy_dtype and stored_op.info == quantized.known:
        return stored_op
    return Constant(quantized.constant.astype(numpy_dtype, copy=False), quantization)


def _bias(value: Value) -> Value | New | None:
    """Return a constant bias in float32, or None if it is not constant, or not a vector."""
    quantized = quantized_source(value)
    if quantized is None or quantized.constant is None or quantized.known.quantization is None:
        return value if value.constant is not None and value.known.rank == 1 else None
    real_bias = dequantize(quantized.constant, quantized.known.quantization).astype(np.float32)
    return constant(real_bias, None, name=value.name) if real_bias.ndim == 1 else None


def _product(op: BatchMatMul, layer: Layer, output_info: TensorInfo) -> New | None:
    """Return a quantized layer for a matrix product, or None if its operands are not suitable.

    A product with a constant matrix becomes a FullyConnected; a product of two tensors remains a BatchMatMul.
    `output_info` is the info of the quantized result.
    """
    weights = quantized_source(layer.inputs[1])
    a = layer.values[0].known
    if (
        weights is None
        or weights.constant is None
        or weights.known.rank != 2
        or a.rank < 2
        or op.transpose_x
        or op.adjoint_y
    ):
        return _all_operands(op, layer, output_info) if output_info.dtype in EIGHT_BITS else None
    fully_connected = FullyConnected(transpose_weight_matrix=op.transpose_y, keep_dims=a.rank > 2)
    return _weighted(fully_connected, layer, output_info)


def _arithmetic(op: ElementwiseBinary, layer: Layer, output_info: TensorInfo) -> New | None:
    integer_layer = _all_operands(op, layer, output_info)
    if integer_layer is None:
        return None
    if op.operation in (BinaryOperation.ADD, BinaryOperation.SUB, BinaryOperation.MUL):
        return integer_layer
    operands = [operand for operand in integer_layer.inputs if isinstance(operand, Value)]
    if op.operation not in (BinaryOperation.MAXIMUM, BinaryOperation.MINIMUM):
        return None
    return New(op, operands) if all(_is_like(operand, output_info) for operand in operands) else None


def _average(op: Pooling2d, layer: Layer, output_info: TensorInfo) -> New | None:
    """Return a quantized Mean if the window is the whole image, else a quantized average pooling.

    `op` and `layer` are the float pooling, and `output_info` is the info of the quantized result. Returns None for
    other poolings.
    """
    x = _operand(layer.inputs[0], output_info)
    if x is None or op.pool_type is not PoolingAlgorithm.AVERAGE:
        return None
    if op.stride_x == 0 and op.pool_width == op.pool_height == 0:
        height, width, _ = op.data_layout.axes()
        return _rounded(Mean((height, width), keep_dims=True), [x])
    return _rounded(op, [x])


def _mean(op: Mean | Reduce, layer: Layer, output_info: TensorInfo) -> New | None:
    is_mean_or_sum = isinstance(op, Mean) or op.operation in (ReduceOperation.MEAN, ReduceOperation.SUM)
    return _all_operands(op, layer, output_info) if is_mean_or_sum else None


def _function(op: Activation, layer: Layer, output_info: TensorInfo) -> New | None:
    """Return a quantized activation for an 8-bit output, which backends compute by a lookup table; None for others.

    `output_info` is the info of the quantized result.
    """
    return _all_operands(op, layer, output_info) if output_info.dtype in EIGHT_BITS else None


_CLAMPS: Final = frozenset({ActivationFunction.RELU, ActivationFunction.BOUNDED_RELU})
_RULES: Final[dict[type[Op], Rule]] = {
    Activation: _function,
    BatchMatMul: _product,
    Concat: _joined,
    ElementwiseBinary: _arithmetic,
    Mean: _mean,
    Pooling2d: _average,
    Reduce: _mean,
}

INTEGERS: Final = (
    dequantize_later,
    move_stored_weights,
    quantize_before_moving,
    quantize_before_clamping,
    slice_stored_integers,
    compute_in_integers,
)
