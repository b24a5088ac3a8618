"""Converters for the operators of torchvision: regions, boxes and deformable convolution."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType
from interposer.frontends.torch.call import Call
from interposer.frontends.torch.registry import aten
from interposer.ir.graph import Value
from interposer.ops.deformable import DeformableConvolution2d
from interposer.ops.detection import NonMaxSuppression
from interposer.ops.regions import RoiAlign, RoiPooling

__all__: list[str] = []

_ALL: Final = (1 << 31) - 1


@aten("torchvision.nms.default")
def nms(c: Call, boxes: Value, scores: Value, threshold: float) -> Value:
    """Convert nms: the indices of the selected boxes, with descending scores."""
    op = NonMaxSuppression(max_output_boxes_per_class=_ALL, iou_threshold=threshold)
    rows = c.step(op, c.unsqueezed(boxes, 0), c.unsqueezed(scores, 0, 1))
    return c.gather(rows, 2, 1)


@aten("torchvision.roi_align.default")
def roi_align(
    c: Call, x: Value, regions: Value, scale: float, height: int, width: int, samples: int, aligned: bool
) -> Value:
    """Convert roi_align; the first column of the regions is the image that each region belongs to."""
    op = RoiAlign(
        output_height=height,
        output_width=width,
        height_stride=1 / scale,
        width_stride=1 / scale,
        height_sampling_ratio=max(samples, 0),
        width_sampling_ratio=max(samples, 0),
        half_pixel=aligned,
    )
    return c.step(op, x, *_of_images(c, regions))


@aten("torchvision.roi_pool.default")
def roi_pool(c: Call, x: Value, regions: Value, scale: float, height: int, width: int) -> list[Value | None]:
    """Convert roi_pool, without the places of the maxima, which are for training."""
    op = RoiPooling(output_height=height, output_width=width, height_stride=1 / scale, width_stride=1 / scale)
    return [c.step(op, x, *_of_images(c, regions)), None]


def _of_images(c: Call, regions: Value) -> tuple[Value, Value]:
    """Return the corners of regions, and the images that they belong to."""
    return c.cut(regions, 1, 1, 4), c.cast(c.gather(regions, 0, 1), DataType.INT32)


@aten("torchvision.deform_conv2d.default")
def deform_conv2d(
    c: Call,
    x: Value,
    weights: Value,
    offset: Value,
    mask: Value,
    bias: Value,
    *numbers: int,
) -> Value:
    """Convert deform_conv2d; without a mask, PyTorch passes one that is not used."""
    stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x, groups, offset_groups, has_mask = numbers
    op = DeformableConvolution2d(
        pad_left=pad_x,
        pad_right=pad_x,
        pad_top=pad_y,
        pad_bottom=pad_y,
        stride_x=stride_x,
        stride_y=stride_y,
        dilation_x=dilation_x,
        dilation_y=dilation_y,
        groups=groups,
        offset_groups=offset_groups,
    )
    return c.step(op, x, weights, offset, bias, mask if has_mask else None)
