"""Deformable convolution, whose sampling positions are shifted by an offset tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import DataType, TensorInfo, differ
from interposer.ops.window import Window

__all__ = ["DeformableConvolution2d"]

_FLOATS: Final = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)


@op
class DeformableConvolution2d(Op):
    """Deformable convolution: the sampling position of every weight is shifted by an offset, which is data.

    Weight (i, j) of the window at output position (y, x) samples row ``y * stride_y - pad_top + i * dilation_y`` plus
    its offset; columns work the same way. Positions between pixels are interpolated bilinearly, and positions outside
    the image give zero. Each of the D groups of input channels has separate offsets. With ``mask``, every sample is
    multiplied by its element of the mask.

    Shapes:
        input: (N, I, H, W)
        weights: (O, I / groups, KH, KW)
        offset: (N, D * KH * KW * 2, OH, OW), for each weight the offset of its row and that of its column
        bias: (O,)
        mask: (N, D * KH * KW, OH, OW)
        output: (N, O, OH, OW), where OH = (H + pads - (KH - 1) * dilation_y - 1) // stride_y + 1, OW likewise

    Example:
        >>> image, weights = [[[[1.0, 2.0, 3.0, 4.0]]]], [[[[10.0]]]]
        >>> offset = [[[[0.0, 0.0, 0.0, 0.0]], [[0.0, 0.5, -2.0, 9.0]]]]
        >>> compute(DeformableConvolution2d(), image, weights, offset).tolist()
        [[[[10.0, 25.0, 10.0, 0.0]]]]

    Source:
        ONNX DeformConv-22.
    """

    input = operand(rank=4, dtypes=_FLOATS)
    weights = operand(role=Role.WEIGHTS, rank=4, same_dtype_as="input")
    offset = operand(role=Role.PARAMETER, rank=4, same_dtype_as="input")
    bias = operand(role=Role.BIAS, rank=1, same_dtype_as="input", optional=True)
    mask = operand(role=Role.PARAMETER, rank=4, same_dtype_as="input", optional=True)
    output = result(rank=4, dtype_of="input")

    pad_left: int = attribute(default=0, ge=0, doc="Number of zero columns added on the left.")
    pad_right: int = attribute(default=0, ge=0, doc="Number of zero columns added on the right.")
    pad_top: int = attribute(default=0, ge=0, doc="Number of zero rows added at the top.")
    pad_bottom: int = attribute(default=0, ge=0, doc="Number of zero rows added at the bottom.")
    stride_x: int = attribute(default=1, ge=1, doc="Stride along the width.")
    stride_y: int = attribute(default=1, ge=1, doc="Stride along the height.")
    dilation_x: int = attribute(default=1, ge=1, doc="Dilation along the width: distance of adjacent weights.")
    dilation_y: int = attribute(default=1, ge=1, doc="Dilation along the height: distance of adjacent weights.")
    groups: int = attribute(default=1, ge=1, doc="Number of groups of channels, which are convolved independently.")
    offset_groups: int = attribute(
        default=1, ge=1, doc="Number of groups of input channels; each group shares its offsets."
    )

    def windows(self, height: int, width: int) -> tuple[Window, Window]:
        """Return the sliding windows along height and width for a kernel of this size, without the offsets."""
        return (
            Window(height, self.stride_y, self.dilation_y, self.pad_top, self.pad_bottom),
            Window(width, self.stride_x, self.dilation_x, self.pad_left, self.pad_right),
        )

    def check(
        self,
        input: TensorInfo,
        weights: TensorInfo,
        offset: TensorInfo,
        bias: TensorInfo | None,
        mask: TensorInfo | None,
    ) -> Iterator[str]:
        channels, output_channels = input.shape[1], weights.shape[0]
        if differ(channels, weights.shape[1] * self.groups) or output_channels % self.groups:
            yield f"input has {channels} channels and weights {weights.shape}; mismatch with groups = {self.groups}"
        if channels % self.offset_groups:
            yield f"input has {channels} channels; expected a multiple of offset_groups = {self.offset_groups}"
        if bias is not None and differ(bias.shape[0], output_channels):
            yield f"bias has {bias.shape[0]} elements; expected {output_channels}, one for each output channel"
        windows = self.windows(*weights.shape[2:])
        yield from windows[0].problems(input.shape[2], "height")
        yield from windows[1].problems(input.shape[3], "width")
        output_shape = self.infer(input, weights, offset, bias, mask).shape
        taps = self.offset_groups * weights.shape[2] * weights.shape[3]
        for name, info, count in (("offset", offset, 2 * taps), ("mask", mask, taps)):
            if info is not None and any(map(differ, info.shape, (output_shape[0], count, *output_shape[2:]))):
                expected = [output_shape[0], count, *output_shape[2:]]
                yield f"{name} has shape {info.shape}; expected {expected}"

    def infer(
        self,
        input: TensorInfo,
        weights: TensorInfo,
        offset: TensorInfo,
        bias: TensorInfo | None,
        mask: TensorInfo | None,
    ) -> TensorInfo:
        rows, columns = self.windows(*weights.shape[2:])
        output_size = rows.places(input.shape[2]), columns.places(input.shape[3])
        return TensorInfo((input.shape[0], weights.shape[0], *output_size), input.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        weights = inputs[1]
        assert weights is not None
        products_per_element = int(weights.num_elements) // max(1, weights.shape[0])
        return 10 * int(outputs[0].num_elements) * products_per_element
