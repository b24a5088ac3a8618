"""Convolutions of images: a window of weights slides over height and width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.types import DataLayout, TensorInfo, TensorShape, differ
from interposer.ops.window import Window

__all__ = ["Convolution2d", "DepthwiseConvolution2d", "TransposeConvolution2d"]

_IMAGES = (DataLayout.NCHW, DataLayout.NHWC)


@op(register=False)
class _Windowed(Op):
    """The attributes of every operator with weights that slide over an image."""

    pad_left: int = attribute(default=0, ge=0, doc="Cells of zero before the first column.")
    pad_right: int = attribute(default=0, ge=0, doc="Cells of zero behind the last column.")
    pad_top: int = attribute(default=0, ge=0, doc="Cells of zero before the first row.")
    pad_bottom: int = attribute(default=0, ge=0, doc="Cells of zero behind the last row.")
    stride_x: int = attribute(default=1, ge=1, doc="Step along the width.")
    stride_y: int = attribute(default=1, ge=1, doc="Step along the height.")
    dilation_x: int = attribute(default=1, ge=1, doc="Distance of neighbouring weights along the width.")
    dilation_y: int = attribute(default=1, ge=1, doc="Distance of neighbouring weights along the height.")
    data_layout: DataLayout = attribute(default=DataLayout.NCHW, choices=_IMAGES, doc="The order of the image's axes.")

    def windows(self, height: int, width: int) -> tuple[Window, Window]:
        """Return how weights of this height and width move along the two axes."""
        return (
            Window(height, self.stride_y, self.dilation_y, self.pad_top, self.pad_bottom),
            Window(width, self.stride_x, self.dilation_x, self.pad_left, self.pad_right),
        )

    def image_shape(self, batch: int, height: int, width: int, channels: int) -> TensorShape:
        """Return the shape of an image in this operator's layout."""
        last = self.data_layout.channels_last
        return TensorShape((batch, height, width, channels) if last else (batch, channels, height, width))


def _products(inputs: Sequence[TensorInfo | None], sums: int, axis: int) -> int:
    """Two operations for every product: each of `sums` is over the weights of one channel, found along `axis`."""
    weights = inputs[1]
    assert weights is not None
    return 2 * sums * (int(weights.num_elements) // max(1, weights.shape[axis]))


def _window_problems(windows: tuple[Window, Window], height: int, width: int) -> Iterator[str]:
    yield from windows[0].problems(height, "height")
    yield from windows[1].problems(width, "width")


def _weight_problems(weights: TensorInfo, bias: TensorInfo | None, axis: int, channels: int) -> Iterator[str]:
    """What is wrong with scales and bias for so many output channels, which lie along that axis of the weights."""
    q = weights.quantization
    if q is not None and q.axis not in {None, axis}:
        yield f"weights are quantized along axis {q.axis}; expected axis {axis}, that of the output channels"
    if bias is not None and differ(bias.shape[0], channels):
        yield f"bias has {bias.shape[0]} elements; expected {channels}, one for each output channel"


@op
class Convolution2d(_Windowed):
    """Correlate an image with weights: every output channel sums all input channels (of its group) under a window.

    Shapes (NHWC; NCHW in brackets):
        input: (N, H, W, I) [(N, I, H, W)]
        weights: (O, KH, KW, I / groups) [(O, I / groups, KH, KW)]
        bias: (O,)
        output: (N, OH, OW, O) [(N, O, OH, OW)], where OH = (H + pads - (KH - 1) * dilation - 1) // stride + 1, OW alike

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
    weights = operand(rank=4)
    bias = operand(rank=1, optional=True)
    output = result(rank=4, dtype_of="input")

    groups: int = attribute(default=1, ge=1, doc="Into how many parts the channels are divided, each by itself.")

    def check(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> Iterator[str]:
        h, w, c = self.data_layout.axes()
        if differ(input.shape[c], weights.shape[c] * self.groups):
            groups = f" in each of {self.groups} groups" if self.groups > 1 else ""
            yield f"input has {input.shape[c]} channels, but weights have {weights.shape[c]}{groups}"
        if weights.shape[0] % self.groups:
            yield f"weights give {weights.shape[0]} channels; expected a multiple of groups = {self.groups}"
        yield from _weight_problems(weights, bias, 0, weights.shape[0])
        yield from _window_problems(self.windows(weights.shape[h], weights.shape[w]), input.shape[h], input.shape[w])

    def infer(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> TensorInfo:
        h, w, _ = self.data_layout.axes()
        rows, columns = self.windows(weights.shape[h], weights.shape[w])
        height, width = rows.places(input.shape[h]), columns.places(input.shape[w])
        return TensorInfo(self.image_shape(input.shape[0], height, width, weights.shape[0]), input.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return _products(inputs, int(outputs[0].num_elements), axis=0)


@op
class DepthwiseConvolution2d(_Windowed):
    """Correlate every channel of an image by itself with M windows of weights: output channel c uses input c // M.

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
    weights = operand(rank=4)
    bias = operand(rank=1, optional=True)
    output = result(rank=4, dtype_of="input")

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


@op
class TransposeConvolution2d(_Windowed):
    """Spread every cell of an image over a window of the output, weighted: the gradient of a convolution.

    Cell y of the input falls on rows ``y * stride - pad_top + k * dilation`` of the output for every row k of the
    weights; what falls outside is dropped. Columns alike.

    Shapes (NHWC; NCHW in brackets):
        input: (N, H, W, I) [(N, I, H, W)]
        weights: (O / groups, KH, KW, I) [(O / groups, I, KH, KW)]
        bias: (O,)
        output: ``output_shape``, or (N, OH, OW, O) [(N, O, OH, OW)],
            where OH = (H - 1) * stride + (KH - 1) * dilation + 1 - pads, OW alike

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
    weights = operand(rank=4)
    bias = operand(rank=1, optional=True)
    output = result(rank=4, dtype_of="input")

    groups: int = attribute(default=1, ge=1, doc="Into how many parts the channels are divided, each by itself.")
    output_shape: tuple[int, ...] | None = attribute(
        default=None, ge=1, doc="The result's shape, where it is not to follow from the rest; all four dimensions."
    )

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
        yield from self._output_problems(self._natural_shape(input, weights))

    def _output_problems(self, natural: tuple[int, ...]) -> Iterator[str]:
        h, w, c = self.data_layout.axes()
        expected = self.output_shape
        if expected is None:
            if natural[h] < 1 or natural[w] < 1:
                yield f"the output would have height {natural[h]} and width {natural[w]}; there is too much padding"
        elif len(expected) != 4:
            yield f"output_shape has rank {len(expected)}; expected rank 4"
        elif differ(expected[0], natural[0]) or differ(expected[c], natural[c]):
            yield f"output_shape is {expected}; expected batch {natural[0]} and {natural[c]} channels"

    def _natural_shape(self, input: TensorInfo, weights: TensorInfo) -> tuple[int, ...]:
        """Return the output's shape as it follows from the rest; its height and width may be too small to be one."""
        h, w, c = self.data_layout.axes()
        shape = [input.shape[0]] * 4
        shape[c] = weights.shape[0] * self.groups
        for axis, window in zip((h, w), self.windows(weights.shape[h], weights.shape[w]), strict=True):
            spread = (input.shape[axis] - 1) * window.stride + window.reach
            shape[axis] = spread - window.pad_before - window.pad_after
        return tuple(shape)

    def infer(self, input: TensorInfo, weights: TensorInfo, bias: TensorInfo | None) -> TensorInfo:
        natural = self._natural_shape(input, weights)
        return TensorInfo(natural if self.output_shape is None else self.output_shape, input.dtype)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        first = inputs[0]
        assert first is not None
        return _products(inputs, int(first.num_elements), axis=3 if self.data_layout.channels_last else 1)
