"""Samples of the operators on regions of an image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from interposer.core.types import DataLayout, DataType
from interposer.ops import HeatmapMaxKeypoint, RoiAlign, RoiAlignMode, RoiPooling
from interposer.testing.drawing import Draw
from interposer.testing.sample import Given, Sample, given, of, samples
from interposer.testing.samples.common import BYTES, FLOATS
from interposer.testing.samples.detection import EIGHTHS, boxes_in, quantized_as

__all__: list[str] = []

SHAPES: Final = {DataLayout.NHWC: (2, 7, 8, 3), DataLayout.NCHW: (2, 3, 7, 8)}


def _regions(dtype: DataType) -> list[Given]:
    """Return two operands: five boxes (x1, y1, x2, y2) and the number of the image that each of them is in.

    The boxes are in pixels of images of 14 by 16, whose feature maps in `SHAPES` have 7 by 8 cells. The last box has
    size 0.
    """
    boxes = boxes_in(Draw("regions"), 5, 14.0)
    boxes[4] = [6, 6, 6, 6]
    regions = of(boxes, dtype) if dtype.is_float else quantized_as(boxes, DataType.UINT16, EIGHTHS)
    return [regions, of([0, 0, 1, 1, 0], DataType.INT32)]


@samples(RoiAlign)
def roi_align() -> Iterator[Sample]:
    """Yield RoiAlign samples.

    They cover given and automatic numbers of samples, means and maxima, with and without the half-pixel offset.
    """
    for layout, shape in SHAPES.items():
        for ratio in (0, 2):
            for mode in RoiAlignMode:
                for half in (False, True):
                    op = RoiAlign(3, 2, 2.0, 2.0, layout, ratio, ratio, mode, half)
                    title = f"{layout}-{ratio}-{mode.name.lower()}-{'half' if half else 'whole'}"
                    for dtype in FLOATS:
                        yield Sample(op, [given(shape, dtype), *_regions(dtype)], name=f"{title}-{dtype}")
                    for dtype, quantization in BYTES.items():
                        yield Sample(op, [given(shape, dtype, quantization), *_regions(dtype)], name=f"{title}-{dtype}")


@samples(RoiPooling)
def roi_pooling() -> Iterator[Sample]:
    """Yield RoiPooling samples: bins that share cells, and bins of several cells."""
    for layout, shape in SHAPES.items():
        for bins in (1, 3):
            op = RoiPooling(bins, 2, 2.0, 2.0, layout)
            for dtype in FLOATS:
                yield Sample(op, [given(shape, dtype), *_regions(dtype)], name=f"{layout}-{bins}-{dtype}")
            for dtype, quantization in BYTES.items():
                yield Sample(op, [given(shape, dtype, quantization), *_regions(dtype)], name=f"{layout}-{bins}-{dtype}")


@samples(RoiAlign, RoiPooling)
def worked() -> Iterator[Sample]:
    """Yield worked RoiAlign and RoiPooling examples with a region of four cells.

    The result is their mean, or the largest of the cells that the region touches.
    """
    operands = [of(np.arange(16.0).reshape(1, 1, 4, 4)), of([[0, 0, 2, 2]]), of([0], DataType.INT32)]
    for op, value in ((RoiAlign(1, 1), 5), (RoiPooling(1, 1), 10)):
        yield Sample(op, operands, name="worked", expected=[np.full((1, 1, 1, 1), value, np.float32)])


@samples(HeatmapMaxKeypoint)
def keypoints() -> Iterator[Sample]:
    """Yield HeatmapMaxKeypoint samples: random heatmaps, and one whose maximum is known."""
    boxes = boxes_in(Draw("keypoints"), 3)
    for layout, shape in ((DataLayout.NHWC, (3, 5, 5, 2)), (DataLayout.NCHW, (3, 2, 5, 5))):
        op = HeatmapMaxKeypoint(layout)
        for dtype in FLOATS:
            yield Sample(op, [given(shape, dtype), of(boxes, dtype)], name=f"{layout}-{dtype}")
        for dtype, quantization in BYTES.items():
            operands = [given(shape, dtype, quantization), quantized_as(boxes, DataType.UINT16, EIGHTHS)]
            yield Sample(op, operands, name=f"{layout}-{dtype}")


@samples(HeatmapMaxKeypoint)
def worked_keypoint() -> Iterator[Sample]:
    """Yield a worked HeatmapMaxKeypoint example.

    The heatmap is three minus the squared distance from (1.25, 1.5), in a box of 8 by 4.
    """
    x, y = np.meshgrid(np.arange(4.0), np.arange(4.0))
    heatmap = of((3 - (x - 1.25) ** 2 - (y - 1.5) ** 2).reshape(1, 1, 4, 4))
    expected = [np.array([[3]], np.float32), np.array([[[3.5, 2]]], np.float32)]
    yield Sample(HeatmapMaxKeypoint(), [heatmap, of([[0, 0, 8, 4]])], name="worked", expected=expected)
