"""Operators on signals: Fourier transforms, window functions, and mel weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import Role
from interposer.core.types import INTEGERS, MAX_RANK, UNKNOWN, DataType, Dim, TensorInfo, differ
from interposer.ops.axes import axes_problems, normal_axis

__all__ = ["Dft", "MelWeightMatrix", "SignalWindow", "Stft", "WindowFunction"]

_FLOATS: Final = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)


class WindowFunction(Enum):
    """The formula of the windows of `SignalWindow`, with N elements n = 0 ... N - 1; M is N if periodic, else N - 1."""

    HANN = "hann"
    """0.5 - 0.5 * cos(2 * pi * n / M)"""
    HAMMING = "hamming"
    """25 / 46 - 21 / 46 * cos(2 * pi * n / M)"""
    BLACKMAN = "blackman"
    """0.42 - 0.5 * cos(2 * pi * n / M) + 0.08 * cos(4 * pi * n / M)"""


def _complex_problems(name: str, info: TensorInfo, real: bool) -> Iterator[str]:
    """Yield an error unless the last dimension of the operand `name` is 1 (real) or 2 (complex).

    With `real`, only 1 is allowed.
    """
    part_count = info.shape[-1]
    if isinstance(part_count, Dim) or part_count not in ((1,) if real else (1, 2)):
        yield f"{name} has shape {info.shape}; expected {'1' if real else '1 or 2'} as its last dimension"


@op
class Dft(Op):
    """The discrete Fourier transform along an axis: y_k = sum of exp(-2 pi i k n / N) * x_n, or its inverse.

    The last axis has the real and imaginary part of each number. A signal that is too short is padded with zeros, and
    one that is too long is truncated. With ``onesided``, only the first N // 2 + 1 frequencies of real signals are
    returned; the inverse takes these frequencies and returns a real signal. The inverse divides by N.

    Shapes:
        input: (..., L, ..., 1) for float values, (..., L, ..., 2) for complex ones
        output: (..., N, ..., 2), where N = ``length``; onesided N // 2 + 1, and its inverse (..., N, ..., 1)

    Example:
        >>> compute(Dft(), [[[1.0], [0.0], [0.0], [0.0]]]).tolist()
        [[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]]

    Source:
        ONNX DFT-20, whose second and third inputs are ``length`` and ``axis`` here.
    """

    input = operand(rank=(2, MAX_RANK), dtypes=_FLOATS)
    output = result(dtype_of="input")

    axis: int = attribute(default=-2, doc="The axis of the signal, which is not the last one.")
    length: int | None = attribute(
        default=None, ge=1, doc="Length N of the transform; None means the length of the signal in the time domain."
    )
    inverse: bool = attribute(default=False, doc="Compute the inverse transform.")
    onesided: bool = attribute(default=False, doc="Omit the redundant frequencies of a real signal.")

    def signal_length(self, size: int) -> int:
        """Return the length N of the signal in time for an input with this size along the operator's axis.

        It is `length` if it is set. Else it is the size itself, or for an inverse onesided transform twice the size
        less 2.
        """
        if self.length is not None:
            return self.length
        return 2 * (size - 1) if self.onesided and self.inverse else size

    def check(self, input: TensorInfo) -> Iterator[str]:
        errors = list(axes_problems([self.axis], input.rank))
        if not errors and normal_axis(self.axis, input.rank) == input.rank - 1:
            errors.append(f"axis is {self.axis}, the axis of the real and imaginary parts; expected another one")
        yield from errors
        if not errors:
            yield from _complex_problems("input", input, real=self.onesided and not self.inverse)
            if self.signal_length(input.shape[self.axis]) < 1:
                yield f"input has shape {input.shape}, whose axis {self.axis} is too short for a signal"

    def infer(self, input: TensorInfo) -> TensorInfo:
        shape, length = list(input.shape), self.signal_length(input.shape[self.axis])
        shape[self.axis] = length // 2 + 1 if self.onesided and not self.inverse else length
        shape[-1] = 1 if self.onesided and self.inverse else 2
        return input.with_shape(shape)

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return _transform_operations(outputs[0].num_elements, outputs[0].shape[self.axis])


@op
class Stft(Op):
    """The short-time Fourier transform: the Fourier transforms of the frames of a signal, multiplied by a window.

    Shapes:
        signal: (B, L, 1) for float values, (B, L, 2) for complex ones
        window: (``frame_length``,); ones if absent
        output: (B, F, K, 2), with F = (L - frame_length) // frame_step + 1 frames and K = frame_length frequencies, or
            onesided frame_length // 2 + 1

    Example:
        >>> op = Stft(frame_step=2, frame_length=2)
        >>> compute(op, [[[1.0], [3.0], [5.0], [5.0]]]).tolist()
        [[[[4.0, 0.0], [-2.0, 0.0]], [[10.0, 0.0], [0.0, 0.0]]]]

    Source:
        ONNX STFT-17.
    """

    signal = operand(rank=3, dtypes=_FLOATS)
    window = operand(role=Role.PARAMETER, rank=1, dtypes=_FLOATS, optional=True)
    output = result(rank=4, dtype_of="signal")

    frame_step: int = attribute(ge=1, doc="Distance between the starts of consecutive frames.")
    frame_length: int = attribute(ge=1, doc="Number of elements of a frame.")
    onesided: bool = attribute(default=True, doc="Omit the redundant frequencies of a real signal.")

    def check(self, signal: TensorInfo, window: TensorInfo | None) -> Iterator[str]:
        yield from _complex_problems("signal", signal, real=self.onesided)
        if signal.shape[1] < self.frame_length:
            yield f"signal has {signal.shape[1]} elements, but a frame has {self.frame_length}"
        if window is not None and differ(window.shape[0], self.frame_length):
            yield f"window has {window.shape[0]} elements; expected {self.frame_length}, the length of a frame"

    def infer(self, signal: TensorInfo, window: TensorInfo | None) -> TensorInfo:
        frames = (signal.shape[1] - self.frame_length) // self.frame_step + 1
        frequencies = self.frame_length // 2 + 1 if self.onesided else self.frame_length
        return signal.with_shape((signal.shape[0], frames, frequencies, 2))

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        return _transform_operations(outputs[0].num_elements, self.frame_length)


def _transform_operations(elements: int, length: int) -> int:
    return 5 * int(elements) * max(1, math.ceil(math.log2(max(1, length))))


@op
class SignalWindow(Op):
    """A window function, by which a signal can be multiplied.

    Shapes:
        size: one element, N
        output: (N,)

    Example:
        >>> compute(SignalWindow(), 4).tolist()
        [0.0, 0.5, 1.0, 0.5]

    Source:
        ONNX HannWindow-17, HammingWindow-17, BlackmanWindow-17.
    """

    size = operand(role=Role.SIZES, rank=(0, 1), dtypes=(DataType.INT32, DataType.INT64))
    output = result(rank=1, dtypes=_FLOATS, dynamic=True)

    function: WindowFunction = attribute(default=WindowFunction.HANN, doc="The window function.")
    periodic: bool = attribute(default=True, doc="The window is periodic (for spectral analysis), not symmetric.")
    dtype: DataType = attribute(default=DataType.FLOAT32, choices=_FLOATS, doc="The type of the result.")

    def check(self, size: TensorInfo) -> Iterator[str]:
        if differ(size.num_elements, 1):
            yield f"size has shape {size.shape}; expected one element"
        elif size.constant is not None and size.constant.item() < 0:
            yield f"size is {size.constant.item()}; expected 0 or more"

    def infer(self, size: TensorInfo) -> TensorInfo:
        return TensorInfo((UNKNOWN if size.constant is None else int(size.constant.item()),), self.dtype)


@op
class MelWeightMatrix(Op):
    """The weight matrix that converts the magnitudes of frequencies to bands on the mel scale.

    Every band is a triangle with value 1 at its center, which falls to 0 at the centers of the previous and the next
    band. The centers have equal distances on the scale mel(f) = 2595 * log10(1 + f / 700), starting at the lower edge.
    They are rounded down to the frequencies (dft_length + 1) * f / sample_rate.

    Shapes:
        num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz: one element each
        output: (dft_length // 2 + 1, num_mel_bins)

    Example:
        >>> compute(MelWeightMatrix(), 1, 4, 350, 0.0, 700.0).tolist()
        [[0.0], [0.5], [1.0]]

    Source:
        ONNX MelWeightMatrix-17.
    """

    num_mel_bins = operand(role=Role.SIZES, rank=(0, 1), dtypes=INTEGERS)
    dft_length = operand(role=Role.SIZES, rank=(0, 1), dtypes=INTEGERS)
    sample_rate = operand(role=Role.PARAMETER, rank=(0, 1), dtypes=INTEGERS)
    lower_edge_hertz = operand(role=Role.PARAMETER, rank=(0, 1), dtypes=_FLOATS)
    upper_edge_hertz = operand(role=Role.PARAMETER, rank=(0, 1), dtypes=_FLOATS)
    output = result(rank=2, dtypes=_FLOATS, dynamic=True)

    dtype: DataType = attribute(default=DataType.FLOAT32, choices=_FLOATS, doc="The type of the result.")

    def check(self, *operands: TensorInfo) -> Iterator[str]:
        for declared_operand, info in zip(self.operands, operands, strict=True):
            if differ(info.num_elements, 1):
                yield f"{declared_operand.name} has shape {info.shape}; expected one element"

    def infer(self, *operands: TensorInfo) -> TensorInfo:
        bins, length = (
            UNKNOWN if info.constant is None else max(0, int(info.constant.item())) for info in operands[:2]
        )
        return TensorInfo((length // 2 + 1, bins), self.dtype)
