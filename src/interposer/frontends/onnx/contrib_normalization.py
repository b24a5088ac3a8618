"""ONNX converters for normalizations of ONNX Runtime, some of which its optimizers write into the standard domain."""

from __future__ import annotations

from collections.abc import Sequence

from interposer.core.errors import ParseError
from interposer.core.types import DataType, differ
from interposer.frontends.axes import checked_axis
from interposer.frontends.elementwise import RSQRT
from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.normalization import layer_normalization
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT
from interposer.frontends.reshaping import final_reshape_like, reshaped
from interposer.ir.graph import Value
from interposer.ops.activation import Activation, ActivationFunction
from interposer.ops.elementwise import Addition, Multiplication
from interposer.ops.normalization import GroupNormalization, LayerNormalization, RmsNormalization
from interposer.ops.rearrange import Transpose
from interposer.ops.reduction import Mean

__all__ = ["inverse_root"]

_SILU = Activation(ActivationFunction.SWISH, 1.0)

operator("LayerNormalization", since=1)(layer_normalization)


@operator("SimplifiedLayerNormalization")
@operator("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(node: Node) -> Sequence[Value]:
    """Convert SimplifiedLayerNormalization: divide by the root mean square, and multiply with a scale.

    The second result is the inverse of the root mean square.
    """
    x, axis, epsilon = node.value(0), node.integer("axis", -1), node.number("epsilon", 1e-5)
    scale = node.cast(node.value(1), x.known.dtype)
    normalized = node.result(RmsNormalization(axis, epsilon), x, scale)
    if not node.wants(1):
        return [normalized]
    axes = tuple(range(checked_axis(axis, x.known.rank), x.known.rank))
    return [normalized, inverse_root(node, node.cast(x, DataType.FLOAT32), axes, epsilon)]


def inverse_root(node: Node, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """Return the inverse of the root of the mean of squares along `axes`, to which `epsilon` is added."""
    mean_square = node.step(Mean(axes, keep_dims=True), node.step(Multiplication(), x, x))
    return node.step(
        RSQRT,
        node.step(Addition(), mean_square, node.scalar_like(epsilon, mean_square)),
    )


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(node: Node) -> Sequence[Value | None]:
    """Convert SkipLayerNormalization: normalize the sum of the input, the skip tensor and the bias.

    Output number 3 is the sum.
    """
    skipped_sum = _skipped(node, node.optional(4))
    op = LayerNormalization(-1, node.number("epsilon", 1e-12))
    return [node.result(op, skipped_sum, node.value(2), node.optional(3)), None, None, skipped_sum]


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(node: Node) -> Sequence[Value | None]:
    """Convert SkipSimplifiedLayerNormalization: as SkipLayerNormalization, but divide by the root mean square."""
    skipped_sum = _skipped(node, node.optional(3))
    op = RmsNormalization(-1, node.number("epsilon", 1e-12))
    return [node.result(op, skipped_sum, node.value(2)), None, None, skipped_sum]


def _skipped(node: Node, bias: Value | None) -> Value:
    """Return the sum of the node's input, of its skip tensor and of `bias`, a vector, if it has one."""
    x, skip, gamma = node.value(0), node.value(1), node.value(2)
    shape, hidden_size = x.known.shape, x.known.shape[-1] if x.known.rank else 0
    if x.known.rank not in (2, 3):
        raise ParseError(f"its input has shape {shape}; expected rank 2 or 3")
    _check_skip(x, skip)
    for title, vector in {"gamma": gamma, "bias": bias, "beta": node.optional(3)}.items():
        if vector is not None and (vector.known.rank != 1 or differ(vector.known.shape[0], hidden_size)):
            raise ParseError(f"its {title} has shape {vector.known.shape}; expected {hidden_size} elements")
    skipped_sum = node.step(Addition(), x, skip)
    return skipped_sum if bias is None else node.step(Addition(), skipped_sum, bias)


def _check_skip(x: Value, skip: Value) -> None:
    """Raise `ParseError` unless the skip tensor has the shape of the input, of which it may lack the batch."""
    shape, skip_shape = x.known.shape, skip.known.shape
    has_batch = len(shape) == len(skip_shape) and not differ(
        *(info.shape[0] if info.rank else 0 for info in (x.known, skip.known))
    )
    lacks_batch = len(shape) == 3 and (len(skip_shape) == 2 or (len(skip_shape) == 3 and not differ(skip_shape[0], 1)))
    if not (has_batch or lacks_batch) or any(map(differ, shape[-len(skip_shape) :][-2:], skip_shape[-2:])):
        raise ParseError(f"its input has shape {shape}, but skip has {skip_shape}")


@operator("GroupNorm", domain=MICROSOFT)
def group_norm(node: Node) -> Value:
    """Convert GroupNorm of images, by default with channels last, perhaps followed by SiLU."""
    return _group_normalized(node, node.value(0))


@operator("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(node: Node) -> Sequence[Value]:
    """Convert SkipGroupNorm: as GroupNorm, of the sum of the input, the skip tensor and the bias; it returns both."""
    x, skip, bias = node.value(0), node.value(3), node.optional(4)
    channels_last = node.flag("channels_last", True)
    if skip.known.rank == 2:
        batch, channels = skip.known.shape
        skip = reshaped(node, skip, [batch, 1, 1, channels] if channels_last else [batch, channels, 1, 1], 1)
    skipped_sum = node.step(Addition(), x, skip)
    if bias is not None:
        skipped_sum = node.step(Addition(), skipped_sum, bias if channels_last else reshaped(node, bias, [-1, 1, 1]))
    return [_group_normalized(node, skipped_sum), skipped_sum]


def _group_normalized(node: Node, x: Value) -> Value:
    """Return the group normalization of images `x` with gamma and beta, followed by SiLU if the node says so."""
    groups, activation, channels_last = (
        node.integer("groups"),
        node.integer("activation"),
        node.flag("channels_last", True),
    )
    if x.known.rank != 4 or groups < 1 or activation not in (0, 1):
        raise ParseError(f"its input has shape {x.known.shape}, groups is {groups} and activation {activation}")
    dtype = x.known.dtype
    images = node.step(Transpose((0, 3, 1, 2)), x) if channels_last else x
    gamma_and_beta = [node.cast(node.value(index), dtype) for index in (1, 2)]
    normalized = node.step(GroupNormalization(groups, node.number("epsilon", 1e-5)), images, *gamma_and_beta)
    normalized = node.step(_SILU, normalized) if activation else normalized
    return node.step(Transpose((0, 2, 3, 1)), normalized) if channels_last else normalized


@operator("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_rms_norm(node: Node) -> Value:
    """Convert BranchwiseRMSNorm: divide each branch by its root mean square.

    The branches are the axis before the last one, or equal parts of the last one.
    """
    x, num_branches = node.value(0), node.integer("num_branches", 0)
    shape, dtype = x.known.shape, x.known.dtype
    if (
        num_branches < 0
        or not shape
        or (num_branches == 0 and len(shape) < 2)
        or (num_branches and shape[-1] % num_branches)
    ):
        raise ParseError(f"its input has shape {shape}, which has no {num_branches or ''} branches".replace("  ", " "))
    grouped_input = (
        reshaped(node, x, [*shape[:-1], num_branches, shape[-1] // num_branches], len(shape) - 1) if num_branches else x
    )
    branch_count, size = grouped_input.known.shape[-2:]
    floats = node.cast(grouped_input, DataType.FLOAT32)
    axes = (grouped_input.known.rank - 1,)
    inverse_rms = inverse_root(node, floats, axes, node.number("epsilon", 1e-5))
    normalized = node.step(Multiplication(), floats, inverse_rms)
    scale = node.optional(1)
    if scale is not None:
        if scale.known.rank == 1 and differ(scale.known.shape[0], size):
            scale = reshaped(node, scale, [branch_count, size])
        normalized = node.step(Multiplication(), normalized, node.cast(scale, DataType.FLOAT32))
    in_input_type = node.cast(normalized, dtype)
    return final_reshape_like(node, in_input_type, x)
