"""How each layer is quantized: which operands are data, and what determines the scales of its result.

The operators say how their results are quantized (`Op.result_quantization`), by the rules of TensorFlow Lite's 8-bit
quantization specification, so that files that are written run in LiteRT. Other operators stay in float. A
BatchMatMul with constant weights becomes a FullyConnected, and a pool over the whole image a Mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.traits import ResultQuantization, Role, Trait
from interposer.core.types import DataType
from interposer.ir.graph import Layer, Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    BatchMatMul,
    FullyConnected,
    Mean,
    Pooling2d,
    PoolingAlgorithm,
)

__all__ = ["Rule", "is_clamp", "rule_of", "whole_image_mean"]


@dataclass(frozen=True)
class Rule:
    """How a layer is quantized.

    `result_quantization` says what determines the quantization of the results. `data_indices` has the numbers of the
    operands that are quantized as data; the others stay as they are, or are weights and bias. A `passive` layer moves
    or chooses elements: it is quantized only beside layers that compute in integers. `op` is the operator of the
    quantized layer. `weights_index` is the number of the operand with the weights, `bias_index` that of the bias, and
    `axis` the axis of the weights that counts output channels.
    """

    result_quantization: ResultQuantization
    op: Op
    data_indices: tuple[int, ...] = (0,)
    passive: bool = False
    weights_index: int | None = None
    bias_index: int | None = None
    axis: int = 0


def rule_of(layer: Layer, dtype: DataType) -> Rule | str:
    """Return how a float32 layer is quantized to activations of type `dtype`, or the reason why it is not."""
    quantization_or_reason = layer.op.result_quantization(dtype)
    if isinstance(quantization_or_reason, str):
        return quantization_or_reason
    data_indices = _connected(layer, Role.DATA)
    if not data_indices:
        return "it has no data"
    if any(_input(layer, index).known.dtype is not DataType.FLOAT32 for index in data_indices):
        return "its data is not float32"
    maker = next((_MAKERS[kind] for kind in type(layer.op).__mro__ if kind in _MAKERS), None)
    return maker(layer.op, layer) if maker is not None else _declared(layer, quantization_or_reason, data_indices)


def _declared(layer: Layer, result_quantization: ResultQuantization, data_indices: tuple[int, ...]) -> Rule | str:
    """Return the rule of a layer that is quantized as its operator declares, or the reason why it is not."""
    op, weights_indices, bias_indices = layer.op, _connected(layer, Role.WEIGHTS), _connected(layer, Role.BIAS)
    if any(_input(layer, index).constant is None for index in weights_indices):
        return "its weights are not constant"
    if any(_input(layer, index).constant is None for index in bias_indices):
        return "its bias is not constant"
    if max(len(weights_indices), len(bias_indices)) > 1 or len(bias_indices) > len(weights_indices):
        return f"{layer.kind} has no form in integers"
    is_same = result_quantization is ResultQuantization.SAME
    is_passive = result_quantization is ResultQuantization.NONE or (is_same and not _compares(op))
    weights_index, bias_index = next(iter(weights_indices), None), next(iter(bias_indices), None)
    return Rule(result_quantization, op, data_indices, is_passive, weights_index, bias_index, op.output_axis)


def _compares(op: Op) -> bool:
    """Return True for operators such as Maximum, which compute with several operands, and move no element."""
    return Trait.CHOOSES | Trait.POINTWISE in op.traits


def _connected(layer: Layer, role: Role) -> tuple[int, ...]:
    """Return the numbers of the connected operands with this role."""
    indices = layer.op.inputs_of(role, len(layer.inputs))
    return tuple(index for index in indices if layer.inputs[index] is not None)


def _input(layer: Layer, index: int) -> Value:
    value = layer.inputs[index]
    assert value is not None, "the operand is connected"
    return value


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
    is_whole = not (op.stride_x or op.pool_width or op.pool_height) or (
        not pads and (op.pool_height, op.pool_width) == (shape[height], shape[width])
    )
    return Mean((height, width), keep_dims=True) if is_whole else None


# --- operators with a rule of their own -------------------------------------------------------------------------------


def _product(op: BatchMatMul, layer: Layer) -> Rule | str:
    a, b = layer.values[:2]
    if b.constant is not None and b.known.rank == 2 and a.known.rank >= 2 and not op.transpose_x:
        dense_op = FullyConnected(transpose_weight_matrix=op.transpose_y, keep_dims=a.known.rank > 2)
        return Rule(ResultQuantization.OBSERVED, dense_op, weights_index=1, axis=dense_op.output_axis)
    if a.known.rank < 2 or b.known.rank < 2:
        return "takes matrices of float32"
    return Rule(ResultQuantization.OBSERVED, op, (0, 1))


def _pooling(op: Pooling2d, layer: Layer) -> Rule:
    mean = whole_image_mean(op, layer)
    if mean is not None:
        return Rule(ResultQuantization.OBSERVED, mean)
    return Rule(ResultQuantization.SAME, op, passive=op.pool_type is PoolingAlgorithm.MAX)


_MAKERS: Final[dict[type[Op], Callable[[Any, Layer], Rule | str]]] = {BatchMatMul: _product, Pooling2d: _pooling}
