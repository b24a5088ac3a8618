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
    producer = above(layer.inputs[0], Convolution2d, DepthwiseConvolution2d, TransposeConvolution2d)
    if producer is None or not _can_fold(producer, op, layer):
        return None
    image, weights, *bias_or_empty = producer.layer.values
    folded_parameters = _folded(producer.op, weights, bias_or_empty[0] if bias_or_empty else None, op, layer)
    if not all(np.isfinite(array).all() for array in folded_parameters):
        return None
    names = (weights.name, bias_or_empty[0].name if bias_or_empty else f"bias-{producer.layer.name}")
    constants = [constant(array, name=name) for array, name in zip(folded_parameters, names, strict=True)]
    return New(producer.op, [image, *constants], like=producer.layer)


def _can_fold(producer: Producer[Convolution], op: BatchNormalization, layer: Layer) -> bool:
    parameters = (*producer.layer.values[1:], *layer.values[1:])
    same_channel_axis = op.data_layout.channels_last == producer.op.data_layout.channels_last
    is_grouped = isinstance(producer.op, TransposeConvolution2d) and producer.op.groups > 1
    return (
        same_channel_axis
        and not is_grouped
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
