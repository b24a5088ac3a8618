"""The rewrite that folds a batch normalization into the preceding convolution.

Numbers are rounded in another order. Results agree within the usual float tolerance, but not bit by bit.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer, Value
from interposer.ops import BatchNormalization, Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d
from interposer.rewriting.pattern import New, Producer, Replacement, above, constant, rewrite

__all__ = ["BATCH_NORMALIZATIONS"]

_FLOATS: Final = frozenset({DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64, DataType.BFLOAT16})
Convolution: TypeAlias = Convolution2d | DepthwiseConvolution2d | TransposeConvolution2d


@rewrite(BatchNormalization)
def fold_batch_normalization(op: BatchNormalization, layer: Layer) -> Replacement:
    """Replace a convolution and the BatchNormalization that alone reads it by a convolution."""
    result = above(layer.inputs[0], Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d)
    if result is None or not _can_fold(result, op, layer):
        return None
    image, weights, *rest = result.layer.values
    created = _folded(result.op, weights, rest[0] if rest else None, op, layer)
    if not all(np.isfinite(array).all() for array in created):
        return None
    names = (weights.name, rest[0].name if rest else f"bias-{result.layer.name}")
    constants = [constant(array, name=name) for array, name in zip(created, names, strict=True)]
    return New(result.op, [image, *constants], like=result.layer)


def _can_fold(producer: Producer[Convolution], op: BatchNormalization, layer: Layer) -> bool:
    parameters = (*producer.layer.values[1:], *layer.values[1:])
    same_channels = op.data_layout.channels_last == producer.op.data_layout.channels_last
    grouped = isinstance(producer.op, TransposeConvolution2d) and producer.op.groups > 1
    return (
        same_channels
        and not grouped
        and len(producer.layer.output.uses) == 1
        and layer.output.known == producer.layer.output.known
        and all(value.is_constant and value.known.dtype in _FLOATS for value in parameters)
    )


def _folded(
    convolution: Convolution, weights: Value, bias: Value | None, op: BatchNormalization, layer: Layer
) -> tuple[Array, Array]:
    """Return weights and bias with which the convolution alone computes what `layer`, the BatchNormalization, does.

    `weights` and `bias` are those of the convolution. The result is computed in float64, and has their types.
    """
    with np.errstate(all="ignore"):
        mean, variance, beta, gamma = (_doubles(value) for value in layer.values[1:])
        scale = gamma / np.sqrt(variance + op.eps)
        shift = beta + ((0 if bias is None else _doubles(bias)) - mean) * scale
        by_channel = scale if isinstance(convolution, DepthwiseConvolution2d) else scale.reshape(-1, 1, 1, 1)
        scaled = np.asarray(weights.constant, np.float64) * by_channel
        return scaled.astype(weights.known.dtype.numpy), shift.astype((bias or weights).known.dtype.numpy)


def _doubles(value: Value) -> NDArray[np.float64]:
    return np.asarray(value.constant, np.float64).reshape(-1)


BATCH_NORMALIZATIONS: Final = (fold_batch_normalization,)
