"""Operators that change the size of an image."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.types import DataLayout, TensorInfo
from interposer.ops.axes import quantized_axis_problems

__all__ = ["Resize", "ResizeMethod"]


class ResizeMethod(Enum):
    """How a pixel is made from the pixels around its place."""

    BILINEAR = 0
    """The four pixels around it, weighted by nearness."""
    NEAREST_NEIGHBOR = 1
    """One of them."""


@op
class Resize(Op):
    """Resample an image to another height and width.

    Pixel x of the result lies at ``x * in / out`` of the input; with ``align_corners`` at ``x * (in - 1) / (out - 1)``,
    with ``half_pixel_centers`` at ``(x + 0.5) * in / out - 0.5``. The nearest neighbour is the pixel in which that
    place lies (half pixels counted), the nearest one with ``align_corners``.

    Shapes (NHWC):
        input: (N, H, W, C)
        output: (N, target_height, target_width, C)

    Example:
        >>> image = [[[[0.0, 4.0]]]]
        >>> compute(Resize(target_width=4, target_height=1), image).tolist()
        [[[[0.0, 0.0, 4.0, 4.0]]]]
        >>> compute(Resize(target_width=4, target_height=1, method=ResizeMethod.BILINEAR), image).tolist()
        [[[[0.0, 2.0, 4.0, 4.0]]]]
        >>> centred = Resize(target_width=4, target_height=1, method=ResizeMethod.BILINEAR, half_pixel_centers=True)
        >>> compute(centred, image).tolist()
        [[[[0.0, 1.0, 3.0, 4.0]]]]

    Source:
        TFLite RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR; NNAPI RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR;
        Arm NN ResizeDescriptor; ONNX Resize-19, modes linear and nearest with the same places.
    """

    input = operand(rank=4)
    output = result(rank=4, dtype_of="input")

    target_width: int = attribute(ge=1, doc="Width of the result.")
    target_height: int = attribute(ge=1, doc="Height of the result.")
    method: ResizeMethod = attribute(default=ResizeMethod.NEAREST_NEIGHBOR, doc="How pixels are made.")
    data_layout: DataLayout = attribute(
        default=DataLayout.NCHW, choices=(DataLayout.NHWC, DataLayout.NCHW), doc="The order of the axes."
    )
    align_corners: bool = attribute(default=False, doc="The corner pixels of input and result lie on each other.")
    half_pixel_centers: bool = attribute(default=False, doc="A pixel lies at its centre, not at its corner.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        if self.align_corners and self.half_pixel_centers:
            yield "align_corners and half_pixel_centers exclude each other"
        for axis in self.data_layout.axes()[:2]:
            if input.shape[axis] == 0:
                yield f"the input of shape {input.shape} has no pixels"
        yield from quantized_axis_problems(input, self.data_layout.axes()[:2], "resize")

    def infer(self, input: TensorInfo) -> TensorInfo:
        h, w, _ = self.data_layout.axes()
        shape = list(input.shape)
        shape[h], shape[w] = self.target_height, self.target_width
        return input.with_shape(shape)
