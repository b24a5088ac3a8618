"""The rewrites that turn a graph into one whose layers ONNX can express: images with the channels first."""

from __future__ import annotations

from typing import Final

from interposer.ir.graph import Layer
from interposer.ops import (
    BatchNormalization,
    Convolution2d,
    Convolution3d,
    DepthToSpace,
    DepthwiseConvolution2d,
    GroupNormalization,
    GruSequence,
    InstanceNormalization,
    IntegerConvolution2d,
    LstmSequence,
    Normalization,
    Pooling2d,
    Pooling3d,
    Resize,
    ReverseSequence,
    RnnSequence,
    RoiAlign,
    SpaceToDepth,
    TransposeConvolution2d,
)
from interposer.ops.axes import normal_axis
from interposer.rewriting.pattern import Replacement, rewrite
from interposer.writers.legalization import (
    Legalization,
    between_transposes,
    divide_shuffle,
    to_axis,
    to_channels_first,
    transpose_before_dequantize,
)
from interposer.writers.onnx.normalization import is_lrn
from interposer.writers.onnx.recurrent_sequence import STATES
from interposer.writers.onnx.resize import rounds_alike

__all__ = ["legalize"]

_CHANNELS_FIRST: Final = (
    to_channels_first(
        BatchNormalization,
        Convolution2d,
        Convolution3d,
        DepthToSpace,
        DepthwiseConvolution2d,
        GroupNormalization,
        InstanceNormalization,
        IntegerConvolution2d,
        Pooling2d,
        Pooling3d,
        RoiAlign,
        SpaceToDepth,
        TransposeConvolution2d,
    ),
    to_channels_first(Resize, when=lambda op, layer: rounds_alike(op, layer.values[0].known.shape)),
    to_axis(
        1,
        Normalization,
        axis_of=lambda op, rank: op.window_axes(rank)[0],
        when=lambda op, layer: is_lrn(op, layer.values[0].known),
    ),
)


@rewrite(RnnSequence, GruSequence, LstmSequence)
def put_time_first(op: RnnSequence | GruSequence | LstmSequence, layer: Layer) -> Replacement:
    """Run a recurrent layer with the batch first with the time first, as few engines support the other form."""
    if op.time_major:
        return None
    state = (1, 0, 2)
    states = [state] * (len(layer.outputs) - 1)
    return between_transposes(
        layer, op.replace(time_major=True), dict.fromkeys((0, *STATES), state), [(1, 2, 0, 3), *states]
    )


@rewrite(ReverseSequence)
def put_batch_and_time_first(op: ReverseSequence, layer: Layer) -> Replacement:
    """Run ReverseSequence with time and batch as the first two axes."""
    rank = layer.values[0].known.rank
    time, batch = normal_axis(op.time_axis, rank), normal_axis(op.batch_axis, rank)
    if {time, batch} == {0, 1}:
        return None
    order = (time, batch, *(axis for axis in range(rank) if axis not in (time, batch)))
    return between_transposes(layer, op.replace(time_axis=0, batch_axis=1), {0: order}, [order])


legalize: Final = Legalization(
    (*_CHANNELS_FIRST, put_time_first, put_batch_and_time_first, divide_shuffle), last=(transpose_before_dequantize,)
)
