"""Convolutions of images, with the windows sliding over height and width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import ResultQuantization, Role
from interposer.core.types import DataLayout, DataType, TensorInfo, TensorShape, differ
from interposer.ops.axes import zero_point_problems
from interposer.ops.quantization import Requantization, requantization
from interposer.ops.window import Window

__all__ = ["Convolution2d", "DepthwiseConvolution2d", "IntegerConvolution2d", "TransposeConvolution2d"]

_IMAGES = (DataLayout.NCHW, DataLayout.NHWC)
_BYTES = (DataType.INT8, DataType.UINT8)


@op(register=False)
class _Windowed(Op):
    """Base class of the 2D convolutions, whose weights slide over an image: padding, strides, dilations and layout."""

    pad_left: int = attribute(default=0, ge=0, doc="Number of zero columns added on the left.")
    pad_right: int = attribute(default=0, ge=0, doc="Number of zero columns added on the right.")
    pad_top: int = attribute(default=0, ge=0, doc="Number of zero rows added at the top.")
    pad_bottom: int = attribute(default=0, ge=0, doc="Number of zero rows added at the bottom.")
    stride_x: int = attribute(default=1, ge=1, doc="Stride along the width.")
    stride_y: int = attribute(default=1, ge=1, doc="Stride along the height.")
    dilation_x: int = attribute(default=1, ge=1, doc="Dilation along the width: distance of adjacent weights.")
    dilation_y: int = attribute(default=1, ge=1, doc="Dilation along the height: distance of adjacent weights.")
    data_layout: DataLayout = attribute(default=DataLayout.NCHW, choices=_IMAGES, doc="The layout of the image.")

    def windows(self, height: int, width: int) -> tuple[Window, Window]:
        """Return the sliding windows along height and width for a kernel of this height and width."""
        return (
            Window(height, self.stride_y, self.dilation_y, self.pad_top, self.pad_bottom),
            Window(width, self.stride_x, self.dilation_x, self.pad_left, self.pad_right),
        )

    def image_shape(self, batch: int, height: int, width: int, channels: int) -> TensorShape:
        """Return the shape of images with these sizes in this operator's layout, NHWC or NCHW."""
        channels_last = self.data_layout.channels_last
        return TensorShape((batch, height, width, channels) if channels_last else (batch, channels, height, width))


def _products(inputs: Sequence[TensorInfo | None], sums: int, axis: int) -> int:
    """Return the number of operations of a convolution that computes `sums` sums: two for each product.

    Each sum has as many products as the weights (the second input) have elements for one index along `axis`.
    """
    weights = inputs[1]
    assert weights is not None
    return 2 * sums * (int(weights.num_elements) // max(1, weights.shape[axis]))


def _window_problems(windows: tuple[Window, Window], height: int, width: int) -> Iterator[str]:
    yield from windows[0].problems(height, "height")
    yield from windows[1].problems(width, "width")


def _weight_problems(weights: TensorInfo, bias: TensorInfo | None, axis: int, channels: int) -> Iterator[str]:
    """Yield an error if the weights are quantized along another axis than `axis`, and if the bias has a wrong length.

    `channels` is the expected length, the number of output channels.
    """
    weights_axis = weights.quantization.axis if weights.quantization else None
    if weights_axis not in {None, axis}:
        yield f"weights are quantized along axis {weights_axis}; expected axis {axis}, the axis of the output channels"
    if bias is not None and differ(bias.shape[0], channels):
        yield f"bias has {bias.shape[0]} elements; expected {channels}, one for each output channel"


@op(register=False)
class _Convolution(_Windowed):
    """Base class of the convolutions whose output channels sum over all input channels of a group.

    It checks the shapes of input and weights and infers the output shape.
    """

    groups: int = attribute(default=1, ge=1, doc="Number of groups of channels, which are convolved independently.")

    def _problems(self, input: TensorInfo, weights: TensorInfo) -> Iterator[str]:
        h, w, c = self.data_layout.axes()
        if differ(input.shape[c], weights.shape[c] * self.groups):
            groups = f" in each of {self.groups} groups" if self.groups > 1 else ""
            yield f"input has {input.shape[c]} channels, but weights have {weights.shape[c]}{groups}"
        if weights.shape[0] % self.groups:
            yield f"weights give {weights.shape[0]} channels; expected a multiple of groups = {self.groups}"
        yield from _window_problems(self.windows(weights.shape[h], weights.shape[w]), input.shape[h], input.shape[w])

    def _shape(self, input: TensorInfo, weights: TensorInfo) -> TensorShape:
        h, w, _ = self.data_layout.axes()
        rows, columns = self.windows(weights.shape[h], weights.shape[w])
        height, width = rows.places(input.shape[h]), columns.places(input.shape[w])
        return self.image_shape(input.shape[0], height, width, weights.shape[0])

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return _products(inputs, int(outputs[0].num_elements), axis=0)


@op(quantized=ResultQuantization.OBSERVED)
class Convolution2d(_Convolution):
    """2D convolution (cross-correlation): every output channel sums over all input channels of its group.

    Shapes (NHWC; NCHW in brackets):
        input: (N, H, W, I) [(N, I, H, W)]
        weights: (O, KH, KW, I / groups) [(O, I / groups, KH, KW)]
        bias: (O,)
        output: (N, OH, OW, O) [(N, O, OH, OW)],
            where OH = (H + pads - (KH - 1) * dilation - 1) // stride + 1, OW likewise

    Example:
        >>> image = [[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]]]
        >>> weights = [[[[1.0, 0.0], [0.0, 10.0]]]]
        >>> compute(Convolution2d(), image, weights, bias=[100.0]).tolist()
        [[[[151.0, 162.0], [184.0, 195.0]]]]
        >>> compute(Convolution2d(stride_x=2, pad_right=1), image, weights).tolist()
        [[[[51.0, 3.0], [84.0, 6.0]]]]

    Source:
        ONNX Conv-22; TFLite CONV_2D; NNAPI CONV_2D, GROUPED_CONV_2D; Arm NN Convolution2dDescriptor.
    """

    input = operand(rank=4)
    weights = operand(role=Role.WEIGHTS, rank=4)
    bias = operand(role=Role.BIAS, rank=1, optional=True)
    output = result(rank=4, dtype_of="input")

    requantization: Requantization = requantization()

    def check(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> Iterator[str]:
        yield from self._problems(input, weights)
        yield from _weight_problems(weights, bias, 0, weights.shape[0])

    def infer(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> TensorInfo:
        return TensorInfo(self._shape(input, weights), input.dtype)


@op
class IntegerConvolution2d(_Convolution):
    """2D convolution of 8-bit integers: `Convolution2d` of input and weights, less their zero points, in int32.

    The integers are used as they are stored, without a scale. Padding adds elements equal to the zero point. Sums that
    exceed int32 wrap around.

    Shapes (NHWC; NCHW in brackets):
        input: (N, H, W, I) [(N, I, H, W)]
        weights: (O, KH, KW, I / groups) [(O, I / groups, KH, KW)]
        input_zero_point: ()
        weights_zero_point: () or (O, 1, 1, 1)
        output: (N, OH, OW, O) [(N, O, OH, OW)], as in `Convolution2d`

    Example:
        >>> image, weights = np.uint8([[[[127, 128, 129]]]]), np.int8([[[[5, 7]]]])
        >>> compute(IntegerConvolution2d(pad_left=1), image, weights, np.uint8(128)).tolist()
        [[[[-7, -5, 7]]]]

    Source:
        ONNX ConvInteger-10.
    """

    input = operand(rank=4, dtypes=_BYTES)
    weights = operand(role=Role.WEIGHTS, rank=4, dtypes=_BYTES)
    input_zero_point = operand(role=Role.PARAMETER, dtypes=_BYTES, optional=True)
    weights_zero_point = operand(role=Role.PARAMETER, dtypes=_BYTES, optional=True)
    output = result(rank=4, dtypes=[DataType.INT32])

    def check(
        self,
        input: TensorInfo,
        weights: TensorInfo,
        input_zero_point: TensorInfo | None,
        weights_zero_point: TensorInfo | None,
    ) -> Iterator[str]:
        yield from self._problems(input, weights)
        if input_zero_point is not None and differ(input_zero_point.num_elements, 1):
            yield f"input_zero_point has shape {input_zero_point.shape}; expected one element"
        yield from zero_point_problems("input", input, input_zero_point)
        yield from zero_point_problems("weights", weights, weights_zero_point)

    def infer(
        self,
        input: TensorInfo,
        weights: TensorInfo,
        input_zero_point: TensorInfo | None,
        weights_zero_point: TensorInfo | None,
    ) -> TensorInfo:
        return TensorInfo(self._shape(input, weights), DataType.INT32)


@op(quantized=ResultQuantization.OBSERVED)
class DepthwiseConvolution2d(_Windowed):
    """Depthwise convolution: each input channel is convolved with M windows; output channel c uses input c // M.

    Shapes (NHWC; NCHW in brackets):
        input: (N, H, W, I) [(N, I, H, W)]
        weights: (1, KH, KW, I * M), in both layouts
        bias: (I * M,)
        output: (N, OH, OW, I * M) [(N, I * M, OH, OW)], with OH and OW as in Convolution2d

    Example:
        >>> image = [[[[1.0, 2.0], [3.0, 4.0]]]]
        >>> weights = [[[[1.0, 10.0, 1.0, -1.0]]]]
        >>> compute(DepthwiseConvolution2d(data_layout=DataLayout.NHWC), image, weights).tolist()
        [[[[1.0, 10.0, 2.0, -2.0], [3.0, 30.0, 4.0, -4.0]]]]

    Source:
        ONNX Conv-22 with as many groups as channels; TFLite DEPTHWISE_CONV_2D; NNAPI DEPTHWISE_CONV_2D;
        Arm NN DepthwiseConvolution2dDescriptor (weights as since 21.08).
    """

    input = operand(rank=4)
    weights = operand(role=Role.WEIGHTS, rank=4)
    bias = operand(role=Role.BIAS, rank=1, optional=True)
    output = result(rank=4, dtype_of="input")

    requantization: Requantization = requantization()

    @property
    def output_axis(self) -> int:
        return 3

    def check(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> Iterator[str]:
        h, w, c = self.data_layout.axes()
        channels = input.shape[c]
        if differ(weights.shape[0], 1):
            yield f"weights have shape {weights.shape}; expected [1, height, width, channels * multiplier]"
        if channels == 0 or weights.shape[3] % channels:
            yield f"weights give {weights.shape[3]} channels; expected a multiple of the input's {channels}"
        yield from _weight_problems(weights, bias, 3, weights.shape[3])
        yield from _window_problems(self.windows(*weights.shape[1:3]), input.shape[h], input.shape[w])

    def infer(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> TensorInfo:
        h, w, _ = self.data_layout.axes()
        rows, columns = self.windows(*weights.shape[1:3])
        height, width = rows.places(input.shape[h]), columns.places(input.shape[w])
        return TensorInfo(self.image_shape(input.shape[0], height, width, weights.shape[3]), input.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return _products(inputs, int(outputs[0].num_elements), axis=3)


@op(quantized=ResultQuantization.OBSERVED)
class TransposeConvolution2d(_Windowed):
    """Transposed convolution: add every input cell, multiplied by the weights, to a window of the output.

    This is the gradient of a convolution with respect to its input. Row y of the input contributes to the rows ``y *
    stride - pad_top + k * dilation`` of the output, for every row k of the weights. Contributions outside the output
    are dropped. Columns work the same way.

    Shapes (NHWC; NCHW in brackets):
        input: (N, H, W, I) [(N, I, H, W)]
        weights: (O / groups, KH, KW, I) [(O / groups, I, KH, KW)]
        bias: (O,)
        output: ``output_shape``, or (N, OH, OW, O) [(N, O, OH, OW)],
            where OH = (H - 1) * stride + (KH - 1) * dilation + 1 - pads, OW likewise

    Example:
        >>> row, weights = [[[[1.0, 2.0]]]], [[[[1.0, 1.0, 10.0]]]]
        >>> compute(TransposeConvolution2d(stride_x=2), row, weights).tolist()
        [[[[1.0, 1.0, 12.0, 2.0, 20.0]]]]
        >>> compute(TransposeConvolution2d(stride_x=2, pad_left=1, pad_right=1), row, weights).tolist()
        [[[[1.0, 12.0, 2.0]]]]

    Source:
        ONNX ConvTranspose-22; TFLite TRANSPOSE_CONV; NNAPI TRANSPOSE_CONV_2D; Arm NN TransposeConvolution2dDescriptor.
    """

    input = operand(rank=4)
    weights = operand(role=Role.WEIGHTS, rank=4)
    bias = operand(role=Role.BIAS, rank=1, optional=True)
    output = result(rank=4, dtype_of="input")

    groups: int = attribute(default=1, ge=1, doc="Number of groups of channels, which are convolved independently.")
    output_shape: tuple[int, ...] | None = attribute(
        default=None, ge=1, doc="The output shape, all four dimensions; None computes it from the other attributes."
    )
    requantization: Requantization = requantization()

    def check(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> Iterator[str]:
        h, w, c = self.data_layout.axes()
        if differ(input.shape[c], weights.shape[c]):
            yield f"input has {input.shape[c]} channels, but weights have {weights.shape[c]}"
        if input.shape[c] % self.groups:
            yield f"input has {input.shape[c]} channels; expected a multiple of groups = {self.groups}"
        yield from _weight_problems(weights, bias, 0, weights.shape[0] * self.groups)
        for axis, name in ((h, "height"), (w, "width")):
            if weights.shape[axis] == 0:
                yield f"the window has {name} 0"
        yield from self._output_problems(self._computed_shape(input, weights))

    def _output_problems(self, computed_shape: tuple[int, ...]) -> Iterator[str]:
        h, w, c = self.data_layout.axes()
        declared_shape = self.output_shape
        if declared_shape is None:
            if computed_shape[h] < 1 or computed_shape[w] < 1:
                height, width = computed_shape[h], computed_shape[w]
                yield f"the output would have height {height} and width {width}; reduce the padding"
        elif len(declared_shape) != 4:
            yield f"output_shape has rank {len(declared_shape)}; expected rank 4"
        elif differ(declared_shape[0], computed_shape[0]) or differ(declared_shape[c], computed_shape[c]):
            batch, channels = computed_shape[0], computed_shape[c]
            yield f"output_shape is {declared_shape}; expected batch {batch} and {channels} channels"

    def _computed_shape(self, input: TensorInfo, weights: TensorInfo) -> tuple[int, ...]:
        """Return the output shape that follows from strides and padding if `output_shape` is not set.

        Its height and width may be below 1.
        """
        h, w, c = self.data_layout.axes()
        shape = [input.shape[0]] * 4
        shape[c] = weights.shape[0] * self.groups
        for axis, window in zip((h, w), self.windows(weights.shape[h], weights.shape[w]), strict=True):
            shape[axis] = window.covered(input.shape[axis]) - window.pad_before - window.pad_after
        return tuple(shape)

    def infer(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> TensorInfo:
        computed_shape = self._computed_shape(input, weights)
        return TensorInfo(computed_shape if self.output_shape is None else self.output_shape, input.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        input = inputs[0]
        assert input is not None
        return _products(inputs, int(input.num_elements), axis=3 if self.data_layout.channels_last else 1)
