"""Operators on regions of an image: cutting them out in one size, and finding points in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.types import DataLayout, DataType, TensorInfo, differ
from interposer.ops.extents import dimension_problems

__all__ = ["HeatmapMaxKeypoint", "RoiAlign", "RoiAlignMode", "RoiPooling"]

_IMAGES: Final = (DataLayout.NCHW, DataLayout.NHWC)
_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)


class RoiAlignMode(Enum):
    """What is made of the samples of one bin."""

    AVERAGE = "average"
    """Their mean."""
    MAX = "max"
    """The largest of their neighbouring cells, each times its weight."""


@op(register=False)
class _OfRegions(Op):
    """What the operators that cut out regions have in common."""

    input = operand(rank=4)
    regions = operand(rank=2)
    batches = operand(rank=1, dtypes=_INDEX_TYPES)
    output = result(rank=4, dtype_of="input")

    output_height: int = attribute(ge=1, doc="Rows of every result.")
    output_width: int = attribute(ge=1, doc="Columns of every result.")
    height_stride: float = attribute(default=1.0, gt=0, doc="What the regions' y is to be divided by to count in rows.")
    width_stride: float = attribute(default=1.0, gt=0, doc="What the regions' x is to be divided by to count columns.")
    data_layout: DataLayout = attribute(default=DataLayout.NCHW, choices=_IMAGES, doc="The order of the images' axes.")

    def check(self, input: TensorInfo, regions: TensorInfo, batches: TensorInfo) -> Iterator[str]:
        yield from dimension_problems({"regions": regions, "batches": batches}, {"regions": "RA", "batches": "R"})
        if differ(regions.shape[1], 4):
            yield f"regions has shape {regions.shape}; expected (x1, y1, x2, y2) for each"
        h, w, _ = self.data_layout.axes()
        if input.shape[h] == 0 or input.shape[w] == 0:
            yield f"input has shape {input.shape}; an image without cells has no regions"

    def infer(self, input: TensorInfo, regions: TensorInfo, batches: TensorInfo) -> TensorInfo:
        h, w, c = self.data_layout.axes()
        shape = [regions.shape[0]] * 4
        shape[h], shape[w], shape[c] = self.output_height, self.output_width, input.shape[c]
        return input.with_shape(shape)


@op
class RoiAlign(_OfRegions):
    """Cut regions out of images in one size: bins of equal size, each sampled at some points between the cells.

    A region is (x1, y1, x2, y2), divided by the strides. Every bin is sampled on a grid, whose size follows from that
    of the bin unless it is given; each sample is interpolated between the four cells around it, of which those beyond
    the border repeat the border, and is 0 more than a cell outside.

    Shapes (NHWC; NCHW in brackets):
        input: (N, H, W, C) [(N, C, H, W)]
        regions: (R, 4)
        batches: (R,), the image that each region belongs to
        output: (R, output_height, output_width, C) [(R, C, output_height, output_width)]

    Example:
        >>> image = [[[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]]]
        >>> op = RoiAlign(output_height=1, output_width=2, height_sampling_ratio=1, width_sampling_ratio=1)
        >>> compute(op, image, [[0.0, 0.0, 2.0, 2.0]], batches=[0]).tolist()
        [[[[5.5, 6.5]]]]
        >>> compute(op.replace(half_pixel=True), image, [[0.0, 0.0, 2.0, 2.0]], batches=[0]).tolist()
        [[[[3.0, 4.0]]]]

    Source:
        ONNX RoiAlign-22 (one stride for both axes: 1 / spatial_scale); NNAPI ROI_ALIGN.
    """

    height_sampling_ratio: int = attribute(default=0, ge=0, doc="Rows of samples in each bin; 0: as it has cells.")
    width_sampling_ratio: int = attribute(default=0, ge=0, doc="Columns of samples in each bin; 0: as it has cells.")
    mode: RoiAlignMode = attribute(default=RoiAlignMode.AVERAGE, doc="What is made of the samples.")
    half_pixel: bool = attribute(
        default=False, doc="Cells have their center at half; otherwise a region is at least one cell wide and high."
    )

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        samples = max(1, self.height_sampling_ratio) * max(1, self.width_sampling_ratio)
        first = inputs[0]
        assert first is not None
        return 8 * samples * int(outputs[0].num_elements) + int(outputs[0].shape[0]) * int(first.num_elements)


@op
class RoiPooling(_OfRegions):
    """Cut regions out of images in one size: bins of nearly equal size, of each the largest cell.

    A region is (x1, y1, x2, y2), divided by the strides and rounded, its last cell included; it has at least one cell.
    Bins may share cells. One without any cell of the image is 0.

    Shapes (NHWC; NCHW in brackets):
        input: (N, H, W, C) [(N, C, H, W)]
        regions: (R, 4)
        batches: (R,), the image that each region belongs to
        output: (R, output_height, output_width, C) [(R, C, output_height, output_width)]

    Example:
        >>> image = [[[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]]]
        >>> op = RoiPooling(output_height=1, output_width=2)
        >>> compute(op, image, regions=[[0.0, 0.0, 3.0, 1.0], [2.0, 2.0, 3.0, 2.0]], batches=[0, 0]).tolist()
        [[[[6.0, 8.0]]], [[[11.0, 12.0]]]]

    Source:
        ONNX MaxRoiPool-22 (batches are the first column of its regions); NNAPI ROI_POOLING.
    """


@op
class HeatmapMaxKeypoint(Op):
    """Find the maximum of every heatmap, between its cells, and where it lies in the image.

    The maximum is that of a quadratic function through the largest cell and its neighbours (those beyond the border
    are mirrored), at most 1.5 cells away from it; where there is no such function, it is the cell itself.

    Shapes (NHWC; NCHW in brackets):
        heatmaps: (N, S, S, K) [(N, K, S, S)]
        boxes: (N, 4), the place of each heatmap in the image, (x1, y1, x2, y2)
        scores: (N, K)
        keypoints: (N, K, 2), (x, y)

    Example:
        >>> heatmap = [[[[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]]]
        >>> scores, keypoints = compute(HeatmapMaxKeypoint(), heatmap, boxes=[[0.0, 0.0, 3.0, 3.0]])
        >>> scores.tolist(), keypoints.tolist()
        ([[1.0]], [[[2.5, 1.5]]])

    Source:
        NNAPI HEATMAP_MAX_KEYPOINT.
    """

    heatmaps = operand(rank=4)
    boxes = operand(rank=2)
    scores = result(rank=2, dtype_of="heatmaps")
    keypoints = result(rank=3, dtype_of="boxes")

    data_layout: DataLayout = attribute(
        default=DataLayout.NCHW, choices=_IMAGES, doc="The order of the heatmaps' axes."
    )

    def check(self, heatmaps: TensorInfo, boxes: TensorInfo) -> Iterator[str]:
        if differ(heatmaps.shape[0], boxes.shape[0]) or differ(boxes.shape[1], 4):
            yield f"boxes has shape {boxes.shape}; expected 4 numbers for each of {heatmaps.shape[0]} heatmaps"
        h, w, _ = self.data_layout.axes()
        height, width = heatmaps.shape[h], heatmaps.shape[w]
        if differ(height, width) or (height < 2 and differ(height, 2)):
            yield f"heatmaps are {height} cells high and {width} wide; expected squares of 2 and more"

    def infer(self, heatmaps: TensorInfo, boxes: TensorInfo) -> tuple[TensorInfo, TensorInfo]:
        pairs = (heatmaps.shape[0], heatmaps.shape[self.data_layout.axes().channels])
        return heatmaps.with_shape(pairs), boxes.with_shape((*pairs, 2))
