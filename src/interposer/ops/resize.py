"""Operators that resize images."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import ResultQuantization, Trait
from interposer.core.types import DataLayout, DataType, TensorInfo
from interposer.ops.axes import quantized_axis_problems

__all__ = ["Resize", "ResizeMethod"]


class ResizeMethod(Enum):
    """The interpolation of `Resize`."""

    BILINEAR = 0
    """Bilinear interpolation between the four nearest pixels."""
    NEAREST_NEIGHBOR = 1
    """The value of the nearest pixel."""


@op
class Resize(Op):
    """Resize an image to another height and width.

    Pixel x of the result corresponds to position ``x * in / out`` of the input; with ``align_corners`` to ``x * (in -
    1) / (out - 1)``, with ``half_pixel_centers`` to ``(x + 0.5) * in / out - 0.5``. NEAREST_NEIGHBOR takes the pixel
    that contains the position (including half pixels), or with ``align_corners`` the nearest pixel.

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
    method: ResizeMethod = attribute(default=ResizeMethod.NEAREST_NEIGHBOR, doc="The interpolation.")
    data_layout: DataLayout = attribute(
        default=DataLayout.NCHW, choices=(DataLayout.NHWC, DataLayout.NCHW), doc="The order of the axes."
    )
    align_corners: bool = attribute(default=False, doc="Align the centers of the corner pixels of input and result.")
    half_pixel_centers: bool = attribute(
        default=False, doc="Coordinates refer to the centers of pixels, not to their corners."
    )

    @property
    def traits(self) -> Trait:
        return Trait.MOVES if self.method is ResizeMethod.NEAREST_NEIGHBOR else Trait.NONE

    def result_quantization(self, dtype: DataType) -> ResultQuantization | str:
        if self.method not in (ResizeMethod.NEAREST_NEIGHBOR, ResizeMethod.BILINEAR):
            return f"{self.method.name} has no form in integers"
        return ResultQuantization.SAME

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
