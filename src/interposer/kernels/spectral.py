"""Kernels of the signal processing operators, in float64 and rounded once."""

from __future__ import annotations

from typing import Final

import numpy as np

from interposer.core.room import check_room
from interposer.core.types import Array
from interposer.kernels.operand_values import checked_count, refuse_value
from interposer.kernels.reference import kernel
from interposer.ops.spectral import Dft, MelWeightMatrix, SignalWindow, Stft, WindowFunction

__all__: list[str] = []

_COEFFICIENTS: Final = {
    WindowFunction.HANN: (0.5, -0.5, 0.0),
    WindowFunction.HAMMING: (25 / 46, -21 / 46, 0.0),
    WindowFunction.BLACKMAN: (0.42, -0.5, 0.08),
}


def _numbers(x: Array) -> Array:
    """Return the numbers whose real and imaginary parts are along the last axis, without that axis.

    They are complex, or floats if the axis has only a real part.
    """
    floats = x.astype(np.float64)
    return floats[..., 0] if x.shape[-1] == 1 else floats[..., 0] + 1j * floats[..., 1]


def _real_and_imaginary(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


@kernel(Dft)
def dft(op: Dft, x: Array) -> Array:
    """Compute `Dft` by NumPy's FFT in float64."""
    axis, numbers = op.axis % x.ndim, _numbers(x)
    length = op.signal_length(x.shape[axis])
    if not op.inverse:
        return _real_and_imaginary((np.fft.rfft if op.onesided else np.fft.fft)(numbers, length, axis))
    if op.onesided:
        signal: Array = np.fft.irfft(numbers, length, axis)
        return signal[..., np.newaxis]
    return _real_and_imaginary(np.fft.ifft(numbers, length, axis))


@kernel(Stft)
def stft(op: Stft, signal: Array, window: Array | None) -> Array:
    """Compute `Stft` over a strided view that has all frames of the signal."""
    frames = np.lib.stride_tricks.sliding_window_view(_numbers(signal), op.frame_length, axis=1)[:, :: op.frame_step]
    weighted = frames if window is None else frames * window.astype(np.float64)
    return _real_and_imaginary((np.fft.rfft if op.onesided else np.fft.fft)(weighted, axis=-1))


@kernel(SignalWindow)
def signal_window(op: SignalWindow, size: Array) -> Array:
    """Compute `SignalWindow`; a symmetric window of one element is 1."""
    count = checked_count("size", size)
    check_room((count,), np.dtype(np.float64).itemsize)
    angle = 2 * np.pi * np.arange(count) / max(1, count if op.periodic else count - 1)
    angle = angle + np.pi if count == 1 and not op.periodic else angle
    constant, cosine_weight, double_cosine_weight = _COEFFICIENTS[op.function]
    return np.asarray(constant + cosine_weight * np.cos(angle) + double_cosine_weight * np.cos(2 * angle))


@kernel(MelWeightMatrix)
def mel_weight_matrix(
    op: MelWeightMatrix, bins: Array, length: Array, rate: Array, lower: Array, upper: Array
) -> Array:
    """Compute `MelWeightMatrix`; `bins` is the number of bands, and `lower` and `upper` are the edges in hertz."""
    count, size = checked_count("num_mel_bins", bins), checked_count("dft_length", length)
    if rate.item() <= 0:
        refuse_value("sample_rate", rate.item(), "expected more than 0")
    check_room((size // 2 + 1, count + 2), np.dtype(np.float64).itemsize)
    low, high = (2595 * np.log10(1 + edge.astype(np.float64).item() / 700) for edge in (lower, upper))
    mel = low + np.arange(count + 2) * (high - low) / (count + 2)
    edges = np.floor((size + 1) * 700 * (10 ** (mel / 2595) - 1) / float(rate.item()))
    left_edges, centers, right_edges = edges[:-2], edges[1:-1], edges[2:]
    frequency = np.arange(size // 2 + 1)[:, np.newaxis]
    rising = np.where(
        centers > left_edges, (frequency - left_edges) / np.maximum(centers - left_edges, 1), frequency >= centers
    )
    falling = (right_edges - frequency) / np.maximum(right_edges - centers, 1)
    return np.asarray(np.where(frequency <= centers, rising, falling).clip(0, 1))
