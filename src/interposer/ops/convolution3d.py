"""Convolution of volumes, with the window sliding over depth, height and width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import DataLayout, TensorInfo, differ
from interposer.ops.quantization import Requantization, requantization
from interposer.ops.volume import VOLUMES, Windows, spatial_axes, volume_shape, window_problems
from interposer.ops.window import Window

__all__ = ["Convolution3d"]


@op
class Convolution3d(Op):
    """3D convolution (cross-correlation): every output channel sums over all input channels of its group.

    Shapes (NDHWC; NCDHW in brackets):
        input: (N, D, H, W, I) [(N, I, D, H, W)]
        weights: (KD, KH, KW, I / groups, O), in both layouts
        bias: (O,)
        output: (N, OD, OH, OW, O) [(N, O, OD, OH, OW)],
            where OD = (D + pads - (KD - 1) * dilation - 1) // stride + 1, OH and OW likewise

    Example:
        >>> volume = np.arange(12.0).reshape(1, 2, 2, 3, 1)
        >>> compute(Convolution3d(), volume, np.ones((2, 2, 2, 1, 1))).tolist()
        [[[[[40.0], [48.0]]]]]
        >>> compute(Convolution3d(stride_x=2, pad_right=1), volume, np.ones((1, 1, 2, 1, 1))).shape
        (1, 2, 2, 2, 1)

    Source:
        ONNX Conv-22 of rank 5 (weights transposed); TFLite CONV_3D; Arm NN Convolution3dDescriptor.
    """

    input = operand(rank=5)
    weights = operand(role=Role.WEIGHTS, rank=5)
    bias = operand(role=Role.BIAS, rank=1, optional=True)
    output = result(rank=5, dtype_of="input")

    pad_left: int = attribute(default=0, ge=0, doc="Number of zero columns added on the left.")
    pad_right: int = attribute(default=0, ge=0, doc="Number of zero columns added on the right.")
    pad_top: int = attribute(default=0, ge=0, doc="Number of zero rows added at the top.")
    pad_bottom: int = attribute(default=0, ge=0, doc="Number of zero rows added at the bottom.")
    pad_front: int = attribute(default=0, ge=0, doc="Number of zero planes added at the front.")
    pad_back: int = attribute(default=0, ge=0, doc="Number of zero planes added at the back.")
    stride_x: int = attribute(default=1, ge=1, doc="Stride along the width.")
    stride_y: int = attribute(default=1, ge=1, doc="Stride along the height.")
    stride_z: int = attribute(default=1, ge=1, doc="Stride along the depth.")
    dilation_x: int = attribute(default=1, ge=1, doc="Dilation along the width: distance of adjacent weights.")
    dilation_y: int = attribute(default=1, ge=1, doc="Dilation along the height: distance of adjacent weights.")
    dilation_z: int = attribute(default=1, ge=1, doc="Dilation along the depth: distance of adjacent weights.")
    groups: int = attribute(default=1, ge=1, doc="Number of groups of channels, which are convolved independently.")
    data_layout: DataLayout = attribute(default=DataLayout.NDHWC, choices=VOLUMES, doc="The layout of the volume.")
    requantization: Requantization = requantization()

    def windows(self, depth: int, height: int, width: int) -> Windows:
        """Return the sliding windows along depth, height and width for a kernel of these sizes."""
        return (
            Window(depth, self.stride_z, self.dilation_z, self.pad_front, self.pad_back),
            Window(height, self.stride_y, self.dilation_y, self.pad_top, self.pad_bottom),
            Window(width, self.stride_x, self.dilation_x, self.pad_left, self.pad_right),
        )

    @property
    def output_axis(self) -> int:
        return 4

    def check(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> Iterator[str]:
        channels, output_channels = input.shape[self.data_layout.axes().channels], weights.shape[4]
        if differ(channels, weights.shape[3] * self.groups):
            groups = f" in each of {self.groups} groups" if self.groups > 1 else ""
            yield f"input has {channels} channels, but weights have {weights.shape[3]}{groups}"
        if output_channels % self.groups:
            yield f"weights give {output_channels} channels; expected a multiple of groups = {self.groups}"
        if weights.quantization is not None and weights.quantization.axis not in {None, 4}:
            yield f"weights are quantized along axis {weights.quantization.axis}; expected axis 4, the output channels"
        if bias is not None and differ(bias.shape[0], output_channels):
            yield f"bias has {bias.shape[0]} elements; expected {output_channels}, one for each output channel"
        yield from window_problems(self.windows(*weights.shape[:3]), self._dimensions(input))

    def _dimensions(self, input: TensorInfo) -> list[int]:
        return [input.shape[axis] for axis in spatial_axes(self.data_layout)]

    def infer(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> TensorInfo:
        windows_and_sizes = zip(self.windows(*weights.shape[:3]), self._dimensions(input), strict=True)
        sizes = [window.places(size) for window, size in windows_and_sizes]
        return TensorInfo(volume_shape(self.data_layout, input.shape[0], sizes, weights.shape[4]), input.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        weights = inputs[1]
        assert weights is not None
        return 2 * int(outputs[0].num_elements) * (int(weights.num_elements) // max(1, weights.shape[4]))
