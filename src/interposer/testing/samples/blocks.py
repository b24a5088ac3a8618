"""Samples of operators that move blocks of an image into its channels or its batch, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import DataLayout, DataType
from interposer.ops import (
    BatchToSpaceNd,
    ChannelShuffle,
    DepthToSpace,
    DepthToSpaceMode,
    SpaceToBatchNd,
    SpaceToDepth,
)
from interposer.testing.sample import Sample, given, of, samples
from interposer.testing.samples.common import f32, image_shape, quantized, typed

__all__: list[str] = []

NHWC, NCHW = DataLayout.NHWC, DataLayout.NCHW
LAYOUTS: Final = {"nhwc": NHWC, "nchw": NCHW}


@samples(SpaceToDepth)
def space_to_depth() -> Iterator[Sample]:
    """Yield SpaceToDepth samples: blocks of several sizes, in both layouts and all types."""
    for label, layout in LAYOUTS.items():
        for size in (1, 2, 3):
            shape = image_shape(layout, 2, 6, 6, 2)
            yield Sample(SpaceToDepth(size, layout), [given(shape)], name=f"{size}-{label}")
            yield Sample(
                SpaceToDepth(size, layout), [quantized(shape, DataType.INT8)], name=f"{size}-{label}-quantized"
            )
        for title, operand in typed(image_shape(layout, 1, 2, 4, 3)):
            yield Sample(SpaceToDepth(2, layout), [operand], name=f"type-{title}-{label}")
    yield Sample(SpaceToDepth(2), [given((0, 2, 2, 1))], name="empty")
    image = of(np.arange(1, 9).reshape(1, 2, 2, 2))
    expected = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 1, 8)
    yield Sample(SpaceToDepth(2), [image], name="worked", expected=[expected])


@samples(DepthToSpace)
def depth_to_space() -> Iterator[Sample]:
    """Yield DepthToSpace samples: blocks of several sizes, both orders of channels, both layouts, and all types."""
    for label, layout in LAYOUTS.items():
        for mode in DepthToSpaceMode:
            for size in (1, 2, 3):
                shape = image_shape(layout, 2, 2, 3, 2 * size**2)
                title = f"{size}-{mode.name.lower()}-{label}"
                yield Sample(DepthToSpace(size, layout, mode), [given(shape)], name=title)
                operand = quantized(shape, DataType.UINT8)
                yield Sample(DepthToSpace(size, layout, mode), [operand], name=f"{title}-quantized")
        for title, operand in typed(image_shape(layout, 1, 2, 1, 8)):
            yield Sample(DepthToSpace(2, layout), [operand], name=f"type-{title}-{label}")
    yield Sample(DepthToSpace(2), [given((0, 2, 2, 4))], name="empty")
    pixel = of(np.arange(1, 9).reshape(1, 1, 1, 8))
    for mode, expected in {
        DepthToSpaceMode.DCR: [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
        DepthToSpaceMode.CRD: [[[1, 5], [2, 6]], [[3, 7], [4, 8]]],
    }.items():
        title = f"worked-{mode.name.lower()}"
        yield Sample(DepthToSpace(2, NHWC, mode), [pixel], name=title, expected=[f32([expected])])


@samples(SpaceToBatchNd)
def space_to_batch() -> Iterator[Sample]:
    """Yield SpaceToBatchNd samples with one, two and three image axes, padding, both layouts, and all types."""
    for label, layout in LAYOUTS.items():
        for block, paddings in [((2, 2), ((0, 0), (0, 0))), ((2, 3), ((1, 1), (0, 2))), ((1, 2), ((3, 0), (0, 0)))]:
            op = SpaceToBatchNd(block, paddings, layout)
            shape = image_shape(layout, 2, 4, 4, 3)
            title = f"{block[0]}x{block[1]}-{label}"
            yield Sample(op, [given(shape)], name=title)
            yield Sample(op, [quantized(shape, DataType.UINT8)], name=f"{title}-quantized")
        for title, operand in typed(image_shape(layout, 1, 3, 4, 2), [DataType.STRING]):
            yield Sample(SpaceToBatchNd((2, 2), ((1, 0), (0, 0)), layout), [operand], name=f"type-{title}-{label}")
        string = given(image_shape(layout, 1, 2, 2, 1), DataType.STRING)
        yield Sample(SpaceToBatchNd((2, 2), data_layout=layout), [string], name=f"type-string-{label}")
    yield Sample(SpaceToBatchNd((2,), ((1, 1),), NHWC), [given((2, 4, 3))], name="one-axis")
    yield Sample(SpaceToBatchNd((2, 1, 2), ((0, 0),) * 3, NHWC), [given((1, 2, 3, 4, 2))], name="three-axes")
    image = of(f32([[1, 2], [3, 4]]).reshape(1, 2, 2, 1))
    op, expected = SpaceToBatchNd((2, 2), data_layout=NHWC), f32([1, 2, 3, 4]).reshape(4, 1, 1, 1)
    yield Sample(op, [image], name="worked", expected=[expected])


@samples(BatchToSpaceNd)
def batch_to_space() -> Iterator[Sample]:
    """Yield BatchToSpaceNd samples with one, two and three image axes, crops, both layouts, and all types."""
    for label, layout in LAYOUTS.items():
        for block, crops in [((2, 2), ((0, 0), (0, 0))), ((2, 3), ((1, 0), (2, 1))), ((1, 2), ((0, 0), (1, 1)))]:
            op = BatchToSpaceNd(block, crops, layout)
            shape = image_shape(layout, 2 * block[0] * block[1], 2, 3, 2)
            title = f"{block[0]}x{block[1]}-{label}"
            yield Sample(op, [given(shape)], name=title)
            yield Sample(op, [quantized(shape, DataType.INT8)], name=f"{title}-quantized")
        for title, operand in typed(image_shape(layout, 4, 2, 1, 2)):
            yield Sample(BatchToSpaceNd((2, 2), ((1, 0), (0, 0)), layout), [operand], name=f"type-{title}-{label}")
    yield Sample(BatchToSpaceNd((2,), ((1, 1),), NHWC), [given((4, 3, 2))], name="one-axis")
    yield Sample(BatchToSpaceNd((2, 1, 2), ((0, 0),) * 3, NHWC), [given((4, 2, 3, 1, 2))], name="three-axes")
    batch = of(f32([1, 2, 3, 4]).reshape(4, 1, 1, 1))
    op, expected = BatchToSpaceNd((2, 2), data_layout=NHWC), f32([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)
    yield Sample(op, [batch], name="worked", expected=[expected])


@samples(ChannelShuffle)
def channel_shuffle() -> Iterator[Sample]:
    """Yield ChannelShuffle samples for every number of groups that divides the axis, every axis, and all types."""
    for groups in (1, 2, 3, 6):
        yield Sample(ChannelShuffle(groups, 1), [given((2, 6, 3))], name=f"groups-{groups}")
    for axis in (0, 2, -1, -2):
        yield Sample(ChannelShuffle(2, axis), [given((4, 6, 2))], name=f"axis{axis}")
    for title, operand in typed((2, 6)):
        yield Sample(ChannelShuffle(3, -1), [operand], name=f"type-{title}")
    expected = [f32([1, 4, 2, 5, 3, 6])]
    yield Sample(ChannelShuffle(2), [of([1, 2, 3, 4, 5, 6])], name="worked", expected=expected)
