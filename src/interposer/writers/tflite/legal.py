"""The rewrites that turn a graph into one whose layers TFLite can express: images with the channels last."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.ir.graph import Layer, Value
from interposer.ops import (
    Activation,
    ActivationFunction,
    BatchNormalization,
    BatchToSpaceNd,
    Convolution2d,
    Convolution3d,
    DepthToSpace,
    DepthwiseConvolution2d,
    ElementwiseBinary,
    FullyConnected,
    GroupNormalization,
    L2Normalization,
    LogSoftmax,
    Normalization,
    Permute,
    Pooling2d,
    Reshape,
    Resize,
    Softmax,
    SpaceToBatchNd,
    SpaceToDepth,
    TopK,
    Transpose,
    TransposeConvolution2d,
)
from interposer.ops.axes import normal_axis
from interposer.ops.normalization import NormalizationAlgorithmChannel
from interposer.rewriting.pattern import New, Replacement, above, constant, rewrite
from interposer.rewriting.sinking import sunk_past_images
from interposer.writers.legalization import Legalization, divide_shuffle, to_axis, to_channels_first, to_channels_last
from interposer.writers.normalizations import NORMALIZATIONS
from interposer.writers.requantization import requantize_in_fixed_point
from interposer.writers.tflite.patterns import gelu_input

__all__ = ["legalize"]


@rewrite(ElementwiseBinary)
def fuse_gelu(op: ElementwiseBinary, layer: Layer) -> Replacement:
    """Replace ``x * (1 + erf(x / sqrt(2))) / 2`` by a single activation."""
    source = gelu_input(layer)
    if source is None or source.known != layer.output.known:
        return None
    return New(Activation(ActivationFunction.GELU), [source])


@rewrite(FullyConnected)
def transpose_weights(op: FullyConnected, layer: Layer) -> Replacement:
    """Remove a Transpose before the rows of a FullyConnected layer by transposing the constant weights instead."""
    x, weights = layer.values[:2]
    reshape = above(x, Reshape)
    image = reshape.layer.values[0] if reshape else x
    transpose = above(image, Transpose, Permute)
    if transpose is None or not weights.is_constant or op.keep_dims or _has_scales_of_columns(weights, op):
        return None
    rows, shape = layer.output.known.shape[0], image.known.shape
    if (
        transpose.op.permutation[0] != 0
        or not image.known.is_concrete
        or shape[0] != rows
        or (reshape and x.known.rank != 2)
    ):
        return None
    array = np.asarray(weights.constant)
    columns = array if op.transpose_weight_matrix else array.transpose()
    inverse_permutation = [transpose.op.permutation.index(axis) for axis in range(len(shape))]
    moved_columns = columns.reshape(-1, *shape[1:]).transpose(inverse_permutation).reshape(columns.shape)
    transposed_weights = constant(
        moved_columns if op.transpose_weight_matrix else moved_columns.transpose(),
        weights.known.quantization,
        name=f"{weights.name}/turned",
    )
    source = New(Reshape((rows, columns.shape[1])), transpose.layer.inputs, name=f"{x.name}/before")
    return New(op, [source, transposed_weights, *layer.inputs[2:]], like=layer)


def _has_scales_of_columns(weights: Value, op: FullyConnected) -> bool:
    """Return True if the weights have scales for each element of a row of the input."""
    q = weights.known.quantization
    return q is not None and q.per_axis and q.axis != op.output_axis


_LAYOUTS: Final = (
    to_channels_last(
        Convolution2d,
        Convolution3d,
        DepthToSpace,
        DepthwiseConvolution2d,
        Pooling2d,
        Resize,
        SpaceToDepth,
        TransposeConvolution2d,
    ),
    to_channels_last(BatchToSpaceNd, SpaceToBatchNd, when=lambda op, layer: layer.values[0].known.rank in (3, 4)),
    to_channels_first(GroupNormalization),
)
_AXES: Final = (
    to_axis(-1, LogSoftmax, Softmax, axis_of=lambda op, rank: normal_axis(op.axis, rank)),
    to_axis(-1, TopK, axis_of=lambda op, rank: normal_axis(op.axis, rank), when=lambda op, layer: op.largest),
    to_axis(-1, L2Normalization, axis_of=lambda op, rank: op.normalized_axis(rank)),
    to_axis(
        -1,
        Normalization,
        axis_of=lambda op, rank: op.window_axes(rank)[0],
        when=lambda op, layer: op.channel_type is NormalizationAlgorithmChannel.ACROSS,
    ),
)
_IN_EITHER_LAYOUT: Final = sunk_past_images(BatchNormalization)
legalize: Final = Legalization(
    (fuse_gelu, requantize_in_fixed_point, divide_shuffle, *_LAYOUTS, *_AXES, *NORMALIZATIONS),
    sinks=(_IN_EITHER_LAYOUT,),
    last=(transpose_weights,),
)
