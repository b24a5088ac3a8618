"""Normalization operators: batch, instance, group, layer, L2, RMS and local response normalization."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import ClassVar

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import ResultQuantization, Role
from interposer.core.types import MAX_RANK, DataLayout, TensorInfo, differ
from interposer.ops.axes import axes_problems, broadcast_shapes, normal_axis

__all__ = [
    "BatchNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "L2Normalization",
    "LayerNormalization",
    "MeanVarianceNormalization",
    "Normalization",
    "NormalizationAlgorithmChannel",
    "NormalizationAlgorithmMethod",
    "RmsNormalization",
]


class NormalizationAlgorithmChannel(Enum):
    """The window of `Normalization`: neighbouring channels (ACROSS), or height and width of one channel (WITHIN)."""

    ACROSS = "across"
    WITHIN = "within"


class NormalizationAlgorithmMethod(Enum):
    """The formulas of Arm NN's Normalization; the reference backend supports only LOCAL_BRIGHTNESS."""

    LOCAL_BRIGHTNESS = "local_brightness"
    LOCAL_CONTRAST = "local_contrast"


def channel_axis(layout: DataLayout, rank: int) -> int:
    """Return the channel axis of a tensor of this rank: the last axis in layouts that end in C, else axis 1.

    A tensor of rank 1 has only channels.
    """
    return rank - 1 if layout.channels_last else min(1, rank - 1)


def _per_channel_problems(name: str, info: TensorInfo | None, channels: int, or_one: bool) -> Iterator[str]:
    if info is None or not differ(info.num_elements, channels) or (or_one and info.num_elements == 1):
        return
    expected = f"{channels} elements, one per channel" + (", or a single one" if or_one else "")
    yield f"{name} has shape {info.shape}; expected {expected}"


@op
class BatchNormalization(Op):
    """Normalize every channel by a given mean and variance: gamma * (x - mean) / sqrt(variance + eps) + beta.

    Shapes (C is the dimension of the channels: the last axis where the layout ends in C, else axis 1):
        input, output: rank 2 or more, the same
        mean, variance, beta, gamma: C elements

    Example:
        >>> statistics = {"mean": [1.0, 0.0], "variance": [4.0, 1.0]}
        >>> op = BatchNormalization(eps=0.0)
        >>> compute(op, [[5.0, 3.0]], beta=[0.0, 1.0], gamma=[1.0, 10.0], **statistics).tolist()
        [[2.0, 31.0]]

    Source:
        ONNX BatchNormalization-15; Arm NN BatchNormalizationDescriptor.
    """

    in_place: ClassVar = ("input",)
    input = operand(rank=(2, MAX_RANK))
    mean = operand(role=Role.PARAMETER)
    variance = operand(role=Role.PARAMETER)
    beta = operand(role=Role.PARAMETER)
    gamma = operand(role=Role.PARAMETER)
    output = result(like="input")

    eps: float = attribute(default=1e-4, ge=0, doc="Added to the variance.")
    data_layout: DataLayout = attribute(default=DataLayout.NCHW, doc="The layout, which determines the channel axis.")

    def check(
        self, input: TensorInfo, mean: TensorInfo, variance: TensorInfo, beta: TensorInfo, gamma: TensorInfo
    ) -> Iterator[str]:
        channels = input.shape[channel_axis(self.data_layout, input.rank)]
        for name, info in (("mean", mean), ("variance", variance), ("beta", beta), ("gamma", gamma)):
            yield from _per_channel_problems(name, info, channels, or_one=False)


@op
class InstanceNormalization(Op):
    """Normalize every channel of every sample by its mean and variance.

    gamma * (x - mean) / sqrt(variance + eps) + beta, where an absent gamma is 1 and an absent beta is 0.

    Shapes (C is the dimension of the channels: the last axis where the layout ends in C, else axis 1):
        input, output: rank 3 or more, the same
        gamma, beta: C elements, or a single one

    Example:
        >>> compute(InstanceNormalization(), [[[1.0, 3.0], [20.0, 60.0]]]).tolist()
        [[[-1.0, 1.0], [-1.0, 1.0]]]
        >>> compute(InstanceNormalization(), [[[1.0, 3.0], [20.0, 60.0]]], gamma=[1.0, 5.0], beta=[10.0, 0.0]).tolist()
        [[[9.0, 11.0], [-5.0, 5.0]]]

    Source:
        ONNX InstanceNormalization-22; NNAPI INSTANCE_NORMALIZATION; Arm NN InstanceNormalizationDescriptor.
    """

    input = operand(rank=(3, MAX_RANK))
    gamma = operand(role=Role.PARAMETER, optional=True)
    beta = operand(role=Role.PARAMETER, optional=True)
    output = result(like="input")

    eps: float = attribute(default=1e-12, ge=0, doc="Added to the variance.")
    data_layout: DataLayout = attribute(default=DataLayout.NCHW, doc="The layout, which determines the channel axis.")

    def check(self, input: TensorInfo, gamma: TensorInfo | None, beta: TensorInfo | None) -> Iterator[str]:
        channels = input.shape[channel_axis(self.data_layout, input.rank)]
        yield from _per_channel_problems("gamma", gamma, channels, or_one=True)
        yield from _per_channel_problems("beta", beta, channels, or_one=True)


@op(quantized=ResultQuantization.PRESCRIBED)
class L2Normalization(Op):
    """Divide by the Euclidean length along an axis: x / sqrt(max(sum of x**2, eps)).

    Shapes:
        input, output: rank 1 or more, the same

    Example:
        >>> compute(L2Normalization(axis=-1), np.float64([[3, 4], [0, -7]])).round(6).tolist()
        [[0.6, 0.8], [0.0, -1.0]]

    Source:
        ONNX LpNormalization-22 with p = 2; TFLite L2_NORMALIZATION; NNAPI L2_NORMALIZATION;
        Arm NN L2NormalizationDescriptor.
    """

    input = operand(rank=(1, MAX_RANK))
    output = result(like="input")

    eps: float = attribute(default=1e-12, ge=0, doc="Lower bound of the sum of squares.")
    data_layout: DataLayout = attribute(default=DataLayout.NCHW, doc="The layout, which determines the channel axis.")
    axis: int | None = attribute(default=None, doc="The axis; None means the channel axis.")

    def normalized_axis(self, rank: int) -> int:
        """Return the normalized axis of an input of this rank, counted from the front."""
        return channel_axis(self.data_layout, rank) if self.axis is None else normal_axis(self.axis, rank)

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems([] if self.axis is None else [self.axis], input.rank)


@op
class Normalization(Op):
    """Local response normalization: x / (k + alpha * sum of x**2 over a window)**beta.

    With ACROSS, the window of an element spans ``norm_size`` channels, centered at the element's own. With WITHIN, it
    is a square of ``norm_size`` by ``norm_size`` elements of the same channel, centered at the element. Elements
    outside the tensor are 0. A window of even size has one more element after the center than before it.

    Shapes:
        input, output: rank 1 or more for ACROSS, 4 for WITHIN, the same

    Example:
        >>> op = Normalization(norm_size=3, alpha=1.0, beta=1.0, axis=0)
        >>> compute(op, [1.0, 1.0, 0.0, 0.0, 4.0]).tolist()
        [0.5, 0.5, 0.0, 0.0, 0.25]

    Source:
        ONNX LRN-13 (whose alpha is divided by the size); TFLite LOCAL_RESPONSE_NORMALIZATION;
        NNAPI LOCAL_RESPONSE_NORMALIZATION; Arm NN NormalizationDescriptor.
    """

    input = operand(rank=(1, MAX_RANK))
    output = result(like="input")

    channel_type: NormalizationAlgorithmChannel = attribute(
        default=NormalizationAlgorithmChannel.ACROSS, doc="Whether the window spans channels, or height and width."
    )
    method_type: NormalizationAlgorithmMethod = attribute(
        default=NormalizationAlgorithmMethod.LOCAL_BRIGHTNESS, doc="The method."
    )
    norm_size: int = attribute(default=0, ge=0, doc="Size of the window, in elements.")
    alpha: float = attribute(default=0.0, doc="The factor on the sum of squares.")
    beta: float = attribute(default=0.0, doc="The exponent.")
    k: float = attribute(default=0.0, doc="The offset.")
    data_layout: DataLayout = attribute(default=DataLayout.NCHW, doc="The layout, which determines the channel axis.")
    axis: int | None = attribute(default=None, doc="The channel axis; None means the one of ``data_layout``.")

    def window_axes(self, rank: int) -> tuple[int, ...]:
        """Return the axes that the window spans in an input of this rank: the channels, or height and width."""
        if self.channel_type is NormalizationAlgorithmChannel.WITHIN:
            height, width, _ = self.data_layout.axes()
            return height, width
        return (channel_axis(self.data_layout, rank) if self.axis is None else normal_axis(self.axis, rank),)

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems([] if self.axis is None else [self.axis], input.rank)
        is_within = self.channel_type is NormalizationAlgorithmChannel.WITHIN
        if is_within and input.rank != 4:
            yield f"input has rank {input.rank}, shape {input.shape}; expected rank 4 for WITHIN"
        elif is_within and self.data_layout not in (DataLayout.NCHW, DataLayout.NHWC):
            yield f"data_layout is {self.data_layout}; expected NCHW or NHWC for WITHIN"


@op
class LayerNormalization(Op):
    """Normalize every sample by the mean and variance over all axes from ``axis`` on.

    gamma * (x - mean) / sqrt(variance + eps) + beta, where an absent gamma is 1 and an absent beta is 0.

    Shapes:
        input, output: rank 1 or more, the same
        gamma, beta: any that broadcast to the input as in NumPy

    Example:
        >>> compute(LayerNormalization(eps=0.0), [[1.0, 3.0], [20.0, 60.0]], gamma=[1.0, 5.0]).tolist()
        [[-1.0, 5.0], [-1.0, 5.0]]

    Source:
        ONNX LayerNormalization-17.
    """

    input = operand(rank=(1, MAX_RANK))
    gamma = operand(role=Role.PARAMETER, optional=True)
    beta = operand(role=Role.PARAMETER, optional=True)
    output = result(like="input")

    axis: int = attribute(default=-1, doc="The first axis that is normalized.")
    eps: float = attribute(default=1e-5, ge=0, doc="Added to the variance.")

    def check(self, input: TensorInfo, gamma: TensorInfo | None, beta: TensorInfo | None) -> Iterator[str]:
        yield from axes_problems([self.axis], input.rank)
        yield from _broadcast_problems("gamma", gamma, input)
        yield from _broadcast_problems("beta", beta, input)


def _broadcast_problems(name: str, info: TensorInfo | None, input: TensorInfo) -> Iterator[str]:
    broadcast = broadcast_shapes(input.shape, info.shape) if info else input.shape
    if broadcast is None or not input.shape.accepts(broadcast):
        yield f"{name} has shape {info and info.shape}, which does not broadcast to the input, {input.shape}"


@op
class RmsNormalization(Op):
    """Divide by the root of the mean square over all axes from ``axis`` on: gamma * x / sqrt(mean of x**2 + eps).

    Without gamma, the factor is 1.

    Shapes:
        input, output: rank 1 or more, the same
        gamma: any that broadcasts to the input as in NumPy

    Example:
        >>> compute(RmsNormalization(eps=0.0), [[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 4.0]]).tolist()
        [[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 2.0]]

    Source:
        ONNX RMSNormalization-23.
    """

    input = operand(rank=(1, MAX_RANK))
    gamma = operand(role=Role.PARAMETER, optional=True)
    output = result(like="input")

    axis: int = attribute(default=-1, doc="The first axis that is normalized.")
    eps: float = attribute(default=1e-5, ge=0, doc="Added to the mean square.")

    def check(self, input: TensorInfo, gamma: TensorInfo | None) -> Iterator[str]:
        yield from axes_problems([self.axis], input.rank)
        yield from _broadcast_problems("gamma", gamma, input)


@op
class GroupNormalization(Op):
    """Normalize groups of consecutive channels of every sample by their mean and variance.

    gamma * (x - mean) / sqrt(variance + eps) + beta, where an absent gamma is 1 and an absent beta is 0.

    Shapes (C is the dimension of the channels: the last axis where the layout ends in C, else axis 1):
        input, output: rank 2 or more, the same
        gamma, beta: C elements, or a single one

    Example:
        >>> compute(GroupNormalization(num_groups=2, eps=0.0), [[1.0, 3.0, 20.0, 60.0]]).tolist()
        [[-1.0, 1.0, -1.0, 1.0]]

    Source:
        ONNX GroupNormalization-21.
    """

    input = operand(rank=(2, MAX_RANK))
    gamma = operand(role=Role.PARAMETER, optional=True)
    beta = operand(role=Role.PARAMETER, optional=True)
    output = result(like="input")

    num_groups: int = attribute(ge=1, doc="Number of groups that the channels are divided into.")
    eps: float = attribute(default=1e-5, ge=0, doc="Added to the variance.")
    data_layout: DataLayout = attribute(default=DataLayout.NCHW, doc="The layout, which determines the channel axis.")

    def check(self, input: TensorInfo, gamma: TensorInfo | None, beta: TensorInfo | None) -> Iterator[str]:
        channels = input.shape[channel_axis(self.data_layout, input.rank)]
        if channels % self.num_groups:
            yield f"{channels} channels cannot be divided into {self.num_groups} groups"
        yield from _per_channel_problems("gamma", gamma, channels, or_one=True)
        yield from _per_channel_problems("beta", beta, channels, or_one=True)


@op
class MeanVarianceNormalization(Op):
    """Normalize to mean 0 and standard deviation 1 along axes: (x - mean) / (sqrt(variance) + eps).

    Shapes:
        input, output: any, the same

    Example:
        >>> compute(MeanVarianceNormalization(axis=(0,)), [[1.0, 20.0], [3.0, 60.0]]).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]

    Source:
        ONNX MeanVarianceNormalization-13.
    """

    input = operand()
    output = result(like="input")

    axis: tuple[int, ...] = attribute(default=(0, 2, 3), doc="The axes over which mean and variance are computed.")
    eps: float = attribute(default=1e-9, ge=0, doc="Added to the standard deviation.")

    def check(self, input: TensorInfo) -> Iterator[str]:
        yield from axes_problems(self.axis, input.rank)
