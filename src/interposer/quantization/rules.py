"""How each operator is quantized: which operands are data, and what determines the scales of its result.

The rules are those of TensorFlow Lite's 8-bit quantization specification, so that files that are written run in LiteRT.
Operators without a rule stay in float.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from interposer.core.schema import Op
from interposer.core.types import DataType
from interposer.ir.graph import Layer, Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    ArgMinMax,
    BatchMatMul,
    BatchToSpaceNd,
    BroadcastTo,
    ChannelShuffle,
    Comparison,
    Concat,
    Convolution2d,
    DepthToSpace,
    DepthwiseConvolution2d,
    ElementwiseBinary,
    ElementwiseUnary,
    FullyConnected,
    Gather,
    GatherElements,
    GatherNd,
    L2Normalization,
    LogSoftmax,
    Mean,
    Pad,
    Permute,
    Pooling2d,
    Prelu,
    Reduce,
    Reshape,
    Resize,
    ReverseSequence,
    ReverseV2,
    Slice,
    Softmax,
    SpaceToBatchNd,
    SpaceToDepth,
    Splitter,
    Stack,
    StridedSlice,
    Tile,
    Transpose,
    TransposeConvolution2d,
    Where,
)
from interposer.ops.elementwise import BinaryOperation, UnaryOperation
from interposer.ops.pooling import PoolingAlgorithm
from interposer.ops.reduction import ReduceOperation
from interposer.ops.resize import ResizeMethod

__all__ = ["Form", "Rule", "is_clamp", "rule_of", "whole_image_mean"]


class Form(Enum):
    """What determines the quantization of a layer's results.

    WEIGHTED: the observed range; the layer has weights. FREE: the observed range. SAME: results have the quantization
    of the data. PRESCRIBED: the operator itself. NONE: results are not quantized, such as indices.
    """

    WEIGHTED = "weighted"
    FREE = "free"
    SAME = "same"
    PRESCRIBED = "prescribed"
    NONE = "none"


@dataclass(frozen=True)
class Rule:
    """How a layer is quantized.

    `data` has the numbers of the operands that are quantized as data; the others stay as they are, or are weights and
    bias. A `passive` layer moves or chooses elements: it is quantized only beside layers that compute in integers. `op`
    is the operator of the quantized layer. `weights` is the number of the operand with the weights, `bias` that of the
    bias, and `axis` the axis of the weights that counts output channels.
    """

    form: Form
    op: Op
    data: tuple[int, ...] = (0,)
    passive: bool = False
    weights: int | None = None
    bias: int | None = None
    axis: int = 0


_MOVES: Final = (
    BatchToSpaceNd, BroadcastTo, ChannelShuffle, DepthToSpace, Gather, GatherElements, GatherNd, Pad, Permute, Reshape,
    ReverseSequence, ReverseV2, Slice, SpaceToBatchNd, SpaceToDepth, Splitter, StridedSlice, Tile, Transpose,
)  # fmt: skip
_FREE_BINARY: Final = frozenset({BinaryOperation.ADD, BinaryOperation.SUB, BinaryOperation.MUL})
_CHOOSING_BINARY: Final = frozenset({BinaryOperation.MAXIMUM, BinaryOperation.MINIMUM})
_UNARY: Final = frozenset({UnaryOperation.ABS, UnaryOperation.NEG})
_STEEP: Final = frozenset({ActivationFunction.SQRT, ActivationFunction.SQUARE})
_WIDE_FUNCTIONS: Final = frozenset(
    {
        ActivationFunction.RELU, ActivationFunction.BOUNDED_RELU, ActivationFunction.LEAKY_RELU,
        ActivationFunction.SIGMOID, ActivationFunction.TANH, ActivationFunction.HARD_SWISH, ActivationFunction.ABS,
    }
)  # fmt: skip
"""The functions that are computed on 16-bit integers; there is no table for so many values."""


def rule_of(layer: Layer, dtype: DataType) -> Rule | str:
    """Return how a float32 layer is quantized to activations of type `dtype`, or the reason why it is not."""
    maker = next((_RULES[kind] for kind in type(layer.op).__mro__ if kind in _RULES), None)
    if maker is None:
        return f"{layer.kind} has no form in integers"
    if any(value.known.dtype is not DataType.FLOAT32 for value in _data(layer)):
        return "its data is not float32"
    return maker(layer.op, layer, dtype)


def _data(layer: Layer) -> list[Value]:
    first = [value for value in layer.inputs[:1] if value is not None]
    return [*layer.values] if isinstance(layer.op, Concat | Stack) else first[:1] if not _is_choice(layer) else []


def _is_choice(layer: Layer) -> bool:
    return isinstance(layer.op, Where)


def is_clamp(op: Op) -> bool:
    """Return True for RELU and BOUNDED_RELU, which engines fuse with the layer before them."""
    return isinstance(op, Activation) and op.function in (ActivationFunction.RELU, ActivationFunction.BOUNDED_RELU)


def whole_image_mean(op: Op, layer: Layer) -> Mean | None:
    """Return the Mean that equals an average pool with one window over the whole image, or None."""
    if not isinstance(op, Pooling2d) or op.pool_type is not PoolingAlgorithm.AVERAGE or not layer.inputs[0]:
        return None
    height, width, _ = op.data_layout.axes()
    shape = layer.inputs[0].known.shape
    pads = op.pad_left or op.pad_right or op.pad_top or op.pad_bottom
    whole = not (op.stride_x or op.pool_width or op.pool_height) or (
        not pads and (op.pool_height, op.pool_width) == (shape[height], shape[width])
    )
    return Mean((height, width), keep_dims=True) if whole else None


# --- one function for each kind of operator ---------------------------------------------------------------------------

_Maker = Callable[[Any, Layer, DataType], "Rule | str"]


def _move(op: Op, layer: Layer, dtype: DataType) -> Rule:
    return Rule(Form.SAME, op, passive=True)


def _several(op: Op, layer: Layer, dtype: DataType) -> Rule:
    return Rule(Form.SAME, op, tuple(range(len(layer.inputs))), passive=True)


def _where(op: Op, layer: Layer, dtype: DataType) -> Rule | str:
    if any(value.known.dtype is not DataType.FLOAT32 for value in layer.values[1:]):
        return "its data is not float32"
    return Rule(Form.SAME, op, (1, 2), passive=True)


def _convolution(op: Op, layer: Layer, dtype: DataType) -> Rule | str:
    return _weighted(op, layer, 3 if isinstance(op, DepthwiseConvolution2d) else 0)


def _dense(op: FullyConnected, layer: Layer, dtype: DataType) -> Rule | str:
    return _weighted(op, layer, op.output_axis)


def _weighted(op: Op, layer: Layer, axis: int) -> Rule | str:
    bias = 2 if len(layer.inputs) > 2 and layer.inputs[2] is not None else None
    if layer.inputs[1] is None or layer.inputs[1].constant is None:
        return "its weights are not constant"
    if bias is not None and layer.values[2].constant is None:
        return "its bias is not constant"
    return Rule(Form.WEIGHTED, op, weights=1, bias=bias, axis=axis)


def _product(op: BatchMatMul, layer: Layer, dtype: DataType) -> Rule | str:
    a, b = layer.values[:2]
    if op.adjoint_x or op.adjoint_y:
        return "adjugate matrices have no form in integers"
    if b.constant is not None and b.known.rank == 2 and a.known.rank >= 2 and not op.transpose_x:
        dense = FullyConnected(transpose_weight_matrix=op.transpose_y, keep_dims=a.known.rank > 2)
        return Rule(Form.WEIGHTED, dense, weights=1, axis=dense.output_axis)
    if b.known.dtype is not DataType.FLOAT32 or a.known.rank < 2 or b.known.rank < 2:
        return "takes matrices of float32"
    return Rule(Form.FREE, op, (0, 1))


def _binary(op: ElementwiseBinary, layer: Layer, dtype: DataType) -> Rule | str:
    if op.operation in _CHOOSING_BINARY:
        return Rule(Form.SAME, op, (0, 1))
    if op.operation in _FREE_BINARY:
        return Rule(Form.FREE, op, (0, 1))
    return f"{op.operation.name} loses too much precision in integers"


def _unary(op: ElementwiseUnary, layer: Layer, dtype: DataType) -> Rule | str:
    if op.operation not in _UNARY:
        return f"{op.operation.name} loses too much precision in integers"
    return Rule(Form.FREE, op)


def _function(op: Activation, layer: Layer, dtype: DataType) -> Rule | str:
    if op.function in _STEEP:
        return f"{op.function.name} loses too much precision in integers"
    if dtype.bits > 8 and op.function not in _WIDE_FUNCTIONS:
        return f"{op.function.name} has no form in integers of {dtype.bits} bits"
    prescribed = op.function is ActivationFunction.SIGMOID or (
        op.function is ActivationFunction.TANH and (op.a, op.b) == (1.0, 1.0)
    )
    return Rule(Form.PRESCRIBED if prescribed else Form.FREE, op)


def _prescribed(op: Op, layer: Layer, dtype: DataType) -> Rule:
    return Rule(Form.PRESCRIBED, op)


def _pooling(op: Pooling2d, layer: Layer, dtype: DataType) -> Rule | str:
    mean = whole_image_mean(op, layer)
    if mean is not None:
        return Rule(Form.FREE, mean)
    if op.pool_type is PoolingAlgorithm.L2:
        return "the L2 pool loses too much precision in integers"
    return Rule(Form.SAME, op, passive=op.pool_type is PoolingAlgorithm.MAX)


def _mean(op: Mean, layer: Layer, dtype: DataType) -> Rule:
    return Rule(Form.FREE, op)


def _reduce(op: Reduce, layer: Layer, dtype: DataType) -> Rule | str:
    if op.operation in (ReduceOperation.MEAN, ReduceOperation.SUM):
        return Rule(Form.FREE, op)
    if op.operation in (ReduceOperation.MAX, ReduceOperation.MIN):
        return Rule(Form.SAME, op, passive=True)
    return f"{op.operation.name} loses too much precision in integers"


def _resize(op: Resize, layer: Layer, dtype: DataType) -> Rule | str:
    if op.method not in (ResizeMethod.NEAREST_NEIGHBOR, ResizeMethod.BILINEAR):
        return f"{op.method.name} has no form in integers"
    return Rule(Form.SAME, op, passive=True)


def _prelu(op: Prelu, layer: Layer, dtype: DataType) -> Rule:
    return Rule(Form.FREE, op, (0, 1))


def _indices(op: Op, layer: Layer, dtype: DataType) -> Rule:
    return Rule(Form.NONE, op, passive=True)


def _comparison(op: Comparison, layer: Layer, dtype: DataType) -> str:
    return "equal numbers may become different ones in integers"


_RULES: Final[dict[type[Op], _Maker]] = {
    **dict.fromkeys(_MOVES, _move),
    Activation: _function,
    ArgMinMax: _indices,
    BatchMatMul: _product,
    Comparison: _comparison,
    Concat: _several,
    Convolution2d: _convolution,
    DepthwiseConvolution2d: _convolution,
    ElementwiseBinary: _binary,
    ElementwiseUnary: _unary,
    FullyConnected: _dense,
    L2Normalization: _prescribed,
    LogSoftmax: _prescribed,
    Mean: _mean,
    Pooling2d: _pooling,
    Prelu: _prelu,
    Reduce: _reduce,
    Resize: _resize,
    Softmax: _prescribed,
    Stack: _several,
    TransposeConvolution2d: _convolution,
    Where: _where,
}
