"""Operators on regions of interest (ROI) of an image: extraction at a fixed size, and keypoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role, Trait
from interposer.core.types import DataLayout, DataType, TensorInfo, differ
from interposer.ops.named_sizes import dimension_problems

__all__ = ["HeatmapMaxKeypoint", "RoiAlign", "RoiAlignMode", "RoiPooling"]

_IMAGES: Final = (DataLayout.NCHW, DataLayout.NHWC)
_INDEX_TYPES: Final = (DataType.INT32, DataType.INT64)


class RoiAlignMode(Enum):
    """How `RoiAlign` combines the samples of a bin."""

    AVERAGE = "average"
    """The mean of the interpolated samples."""
    MAX = "max"
    """The maximum of the neighbouring cells, each times its interpolation weight."""


@op(register=False)
class _OfRegions(Op):
    """Base class of `RoiAlign` and `RoiPooling`, which extract regions of images: operands, attributes and checks."""

    input = operand(rank=4)
    regions = operand(role=Role.PARAMETER, rank=2)
    batches = operand(role=Role.INDICES, rank=1, dtypes=_INDEX_TYPES)
    output = result(rank=4, dtype_of="input")

    output_height: int = attribute(ge=1, doc="Height of every extracted region.")
    output_width: int = attribute(ge=1, doc="Width of every extracted region.")
    height_stride: float = attribute(
        default=1.0, gt=0, doc="Divisor that converts y of the regions to rows of the input."
    )
    width_stride: float = attribute(
        default=1.0, gt=0, doc="Divisor that converts x of the regions to columns of the input."
    )
    data_layout: DataLayout = attribute(default=DataLayout.NCHW, choices=_IMAGES, doc="The layout of the images.")

    def check(self, input: TensorInfo, regions: TensorInfo, batches: TensorInfo) -> Iterator[str]:
        yield from dimension_problems({"regions": regions, "batches": batches}, {"regions": "RA", "batches": "R"})
        if differ(regions.shape[1], 4):
            yield f"regions has shape {regions.shape}; expected (x1, y1, x2, y2) for each"
        h, w, _ = self.data_layout.axes()
        if input.shape[h] == 0 or input.shape[w] == 0:
            yield f"input has shape {input.shape}; expected images of height and width 1 or more"

    def infer(self, input: TensorInfo, regions: TensorInfo, batches: TensorInfo) -> TensorInfo:
        h, w, c = self.data_layout.axes()
        shape = [regions.shape[0]] * 4
        shape[h], shape[w], shape[c] = self.output_height, self.output_width, input.shape[c]
        return input.with_shape(shape)


@op
class RoiAlign(_OfRegions):
    """Extract regions of images at a fixed size: each region is divided into bins, which are sampled bilinearly.

    A region is (x1, y1, x2, y2), divided by the strides. Every bin is sampled on a grid; by default, the size of the
    grid follows from the size of the bin. Each sample is interpolated between the four cells around it. Beyond the
    border, the border cells are repeated; samples that are more than one cell outside the image are 0.

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

    height_sampling_ratio: int = attribute(
        default=0, ge=0, doc="Rows of samples in each bin; 0: the height of the bin in cells, rounded up."
    )
    width_sampling_ratio: int = attribute(
        default=0, ge=0, doc="Columns of samples in each bin; 0: the width of the bin in cells, rounded up."
    )
    mode: RoiAlignMode = attribute(default=RoiAlignMode.AVERAGE, doc="How the samples of a bin are combined.")
    half_pixel: bool = attribute(
        default=False, doc="Shift regions by half a cell (half-pixel centers); otherwise a region has at least size 1."
    )

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        samples = max(1, self.height_sampling_ratio) * max(1, self.width_sampling_ratio)
        input = inputs[0]
        assert input is not None
        return 8 * samples * int(outputs[0].num_elements) + int(outputs[0].shape[0]) * int(input.num_elements)


@op(traits=Trait.DISCONTINUOUS)
class RoiPooling(_OfRegions):
    """Extract regions of images at a fixed size: each region is divided into bins, of which the maximum is taken.

    A region is (x1, y1, x2, y2), divided by the strides and rounded; its last cell is included, and it has at least one
    cell. Bins may share cells. A bin without any cell of the image gives 0.

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


@op(traits=Trait.DISCONTINUOUS)
class HeatmapMaxKeypoint(Op):
    """Find the maximum of every heatmap with sub-cell precision, and its position in the image.

    The maximum is that of a quadratic function through the largest cell and its neighbours, at most 1.5 cells away from
    that cell. Neighbours beyond the border are mirrored. If the quadratic function has no maximum, the largest cell is
    used.

    Shapes (NHWC; NCHW in brackets):
        heatmaps: (N, S, S, K) [(N, K, S, S)]
        boxes: (N, 4), the position of each heatmap in the image, (x1, y1, x2, y2)
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

    data_layout: DataLayout = attribute(default=DataLayout.NCHW, choices=_IMAGES, doc="The layout of the heatmaps.")

    def check(self, heatmaps: TensorInfo, boxes: TensorInfo) -> Iterator[str]:
        if differ(heatmaps.shape[0], boxes.shape[0]) or differ(boxes.shape[1], 4):
            yield f"boxes has shape {boxes.shape}; expected 4 numbers for each of {heatmaps.shape[0]} heatmaps"
        h, w, _ = self.data_layout.axes()
        height, width = heatmaps.shape[h], heatmaps.shape[w]
        if differ(height, width) or (height < 2 and differ(height, 2)):
            yield f"heatmaps are {height} cells high and {width} wide; expected squares of size 2 or more"

    def infer(self, heatmaps: TensorInfo, boxes: TensorInfo) -> tuple[TensorInfo, TensorInfo]:
        counts = (heatmaps.shape[0], heatmaps.shape[self.data_layout.axes().channels])
        return heatmaps.with_shape(counts), boxes.with_shape((*counts, 2))
