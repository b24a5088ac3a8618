"""Pooling of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import ResultQuantization, Trait
from interposer.core.types import DataLayout, DataType, TensorInfo
from interposer.ops.quantization import Requantization, requantization
from interposer.ops.window import Window

__all__ = ["OutputShapeRounding", "PaddingMethod", "Pooling2d", "PoolingAlgorithm"]


class PoolingAlgorithm(Enum):
    """The function that reduces the elements of a window: maximum, mean (AVERAGE) or root of the mean square (L2)."""

    MAX = "max"
    AVERAGE = "average"
    L2 = "l2"


class PaddingMethod(Enum):
    """Whether an average excludes padding (EXCLUDE) or includes it as zeros (IGNORE_VALUE)."""

    IGNORE_VALUE = "ignore_value"
    EXCLUDE = "exclude"


class OutputShapeRounding(Enum):
    """Whether a last window that exceeds the padded image is included in the output (CEILING) or not (FLOOR)."""

    FLOOR = "floor"
    CEILING = "ceiling"


@op
class Pooling2d(Op):
    """2D pooling: reduce every window that slides over an image, independently for each channel.

    MAX takes the maximum, AVERAGE the mean, L2 the root of the mean square. MAX ignores padding, and a window that
    contains only padding gives 0. If both strides and both sizes are 0, the window is the whole image (global pooling).

    Shapes (NHWC; NCHW in brackets):
        input: (N, H, W, C) [(N, C, H, W)]
        output: (N, OH, OW, C) [(N, C, OH, OW)],
            where OH = round((H + pads - (pool_height - 1) * dilation - 1) / stride) + 1, OW likewise;
            with CEILING, a last window that would begin after the image and its leading padding is dropped

    Example:
        >>> image = [[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]]
        >>> compute(Pooling2d(pool_width=2, pool_height=2, stride_x=1, stride_y=1), image).tolist()
        [[[[5.0, 6.0]]]]
        >>> compute(Pooling2d(pool_type=PoolingAlgorithm.AVERAGE), image).tolist()
        [[[[3.5]]]]
        >>> pairs = {"pool_width": 2, "pool_height": 1, "stride_x": 2, "stride_y": 1, "pad_left": 1}
        >>> mean = Pooling2d(pool_type=PoolingAlgorithm.AVERAGE, **pairs)
        >>> compute(mean, image).tolist()
        [[[[1.0, 2.5], [4.0, 5.5]]]]
        >>> compute(mean.replace(padding_method=PaddingMethod.IGNORE_VALUE), image).tolist()
        [[[[0.5, 2.5], [2.0, 5.5]]]]

    Source:
        ONNX MaxPool-22, AveragePool-22, GlobalMaxPool-22, GlobalAveragePool-22, LpPool-22; TFLite AVERAGE_POOL_2D,
        MAX_POOL_2D, L2_POOL_2D; NNAPI AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D; Arm NN Pooling2dDescriptor.
    """

    input = operand(rank=4)
    output = result(rank=4, dtype_of="input")

    pool_type: PoolingAlgorithm = attribute(default=PoolingAlgorithm.MAX, doc="The function that reduces a window.")
    pad_left: int = attribute(default=0, ge=0, doc="Padding on the left, in columns.")
    pad_right: int = attribute(default=0, ge=0, doc="Padding on the right, in columns.")
    pad_top: int = attribute(default=0, ge=0, doc="Padding at the top, in rows.")
    pad_bottom: int = attribute(default=0, ge=0, doc="Padding at the bottom, in rows.")
    pool_width: int = attribute(default=0, ge=0, doc="Width of the window; 0 means the whole width.")
    pool_height: int = attribute(default=0, ge=0, doc="Height of the window; 0 means the whole height.")
    stride_x: int = attribute(
        default=0, ge=0, doc="Stride along the width; 0 in both directions means a single window."
    )
    stride_y: int = attribute(
        default=0, ge=0, doc="Stride along the height; 0 in both directions means a single window."
    )
    output_shape_rounding: OutputShapeRounding = attribute(
        default=OutputShapeRounding.FLOOR, doc="Rounding of the output size."
    )
    padding_method: PaddingMethod = attribute(default=PaddingMethod.EXCLUDE, doc="Whether an average includes padding.")
    data_layout: DataLayout = attribute(
        default=DataLayout.NCHW, choices=(DataLayout.NCHW, DataLayout.NHWC), doc="The layout of the image."
    )
    dilation_x: int = attribute(default=1, ge=1, doc="Dilation along the width.")
    dilation_y: int = attribute(default=1, ge=1, doc="Dilation along the height.")
    requantization: Requantization = requantization()

    @property
    def traits(self) -> Trait:
        return Trait.CHOOSES if self.pool_type is PoolingAlgorithm.MAX else Trait.NONE

    def result_quantization(self, dtype: DataType) -> ResultQuantization | str:
        if self.pool_type is PoolingAlgorithm.L2:
            return "the L2 pool loses too much precision in integers"
        return ResultQuantization.SAME

    def check(self, input: TensorInfo) -> Iterator[str]:
        if (self.stride_x == 0) != (self.stride_y == 0):
            yield f"stride_x is {self.stride_x} and stride_y {self.stride_y}; expected both or none to be 0"
        elif self.stride_x and not (self.pool_width and self.pool_height):
            yield f"the window has height {self.pool_height} and width {self.pool_width}; expected at least 1"
        else:
            h, w, _ = self.data_layout.axes()
            rows, columns = self.windows(input.shape[h], input.shape[w])
            rounded_up = self.output_shape_rounding is OutputShapeRounding.CEILING
            yield from rows.problems(input.shape[h], "height", rounded_up=rounded_up)
            yield from columns.problems(input.shape[w], "width", rounded_up=rounded_up)

    def windows(self, height: int, width: int) -> tuple[Window, Window]:
        """Return the sliding windows along height and width for an image of this size."""
        return (
            pool_window(self.pool_height, height, self.stride_y, self.dilation_y, self.pad_top, self.pad_bottom),
            pool_window(self.pool_width, width, self.stride_x, self.dilation_x, self.pad_left, self.pad_right),
        )

    def infer(self, input: TensorInfo) -> TensorInfo:
        h, w, _ = self.data_layout.axes()
        shape = list(input.shape)
        for axis, window in zip((h, w), self.windows(shape[h], shape[w]), strict=True):
            shape[axis] = places_of_pool(window, shape[axis], self.output_shape_rounding, self.stride_x > 0)
        return input.with_shape(shape)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        shape = inputs[0].shape if inputs[0] else ()
        h, w, _ = self.data_layout.axes()
        rows, columns = self.windows(shape[h], shape[w])
        return int(outputs[0].num_elements) * rows.size * columns.size


def places_of_pool(window: Window, size: int, rounding: OutputShapeRounding, moves: bool) -> int:
    """Return the number of window positions along an axis of size `size`; 1 if the window does not move.

    `rounding` says if a last window may exceed the padded image.
    """
    if not moves:
        return 1
    return window.places(size) if rounding is OutputShapeRounding.FLOOR else window.places_rounded_up(size)


def pool_window(size: int, axis_size: int, stride: int, dilation: int, pad_before: int, pad_after: int) -> Window:
    """Return the window of this size along an axis of size `axis_size`, with padding before and after the image.

    Size 0 means the whole dimension without padding. Stride 0, for a single position, becomes 1.
    """
    if size == 0:
        return Window(axis_size, 1, 1, 0, 0)
    return Window(size, stride or 1, dilation, pad_before, pad_after)
