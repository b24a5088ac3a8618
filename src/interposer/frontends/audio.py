"""Features of audio, for TensorFlow and TFLite: spectrograms, and cepstral coefficients on the mel scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array
from interposer.frontends.elementwise import LOG, SQRT
from interposer.frontends.node import Layers
from interposer.ir.graph import Value
from interposer.ops.elementwise import Maximum
from interposer.ops.matmul import BatchMatMul
from interposer.ops.rearrange import Pad, Transpose
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import Reshape
from interposer.ops.spectral import Stft

__all__ = ["cepstrum", "spectrogram"]

_LEAST_ENERGY = np.float32(1e-12)
"""What stands for smaller energies of bands, which have no logarithm."""


def spectrogram(node: Layers, x: Value, window: int, stride: int, *, squared: bool) -> Value:
    """Return the magnitudes of short-time Fourier transforms of x [samples, channels] as the node's own result.

    The window is a periodic Hann window, and the transform has the next power of two of its length. The magnitudes are
    `squared` or not.
    """
    length = 1 << (window - 1).bit_length()
    samples, channels = x.known.shape
    padded = node.step(Pad(((0, 0), (0, length - window))), node.step(Transpose((1, 0)), x))
    signal = node.step(Reshape((channels, samples + length - window, 1)), padded)
    spectrum = node.step(Stft(frame_step=stride, frame_length=length), signal, node.constant(_hann(window, length)))
    operation = ReduceOperation.SUM_SQUARE if squared else ReduceOperation.L2
    return node.result(Reduce((-1,), operation=operation), spectrum)


def cepstrum(node: Layers, x: Value, rate: int, bands: int, count: int, limits: tuple[float, float]) -> Value:
    """Return `count` cepstral coefficients of a squared spectrum [channels, frames, bins] as the node's own result.

    They are the discrete cosine transform of the logarithms of energies in `bands` on the mel scale. `rate` is the
    number of samples in a second, and `limits` are the lowest and the highest frequency in Hz.
    """
    magnitudes = node.step(SQRT, x)
    weights = _mel_bands(x.known.shape[2], rate, bands, *limits)
    energies = node.step(BatchMatMul(), magnitudes, node.constant(weights))
    floored = node.step(Maximum(), energies, node.constant(np.full((1, 1, 1), _LEAST_ENERGY)))
    return node.result(BatchMatMul(), node.step(LOG, floored), node.constant(_cosines(bands, count)))


def _hann(window: int, length: int) -> Array:
    """Return a periodic Hann window, followed by zeros up to `length`."""
    values = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    return np.pad(values, (0, length - window)).astype(np.float32)


def _mel(frequency: float | NDArray[np.float64]) -> NDArray[np.float64]:
    return 1127.0 * np.log1p(np.asarray(frequency, np.float64) / 700.0)


def _mel_bands(bins: int, rate: int, bands: int, low: float, high: float) -> Array:
    """Return the weights (1, bins, bands) of each frequency in overlapping triangular bands on the mel scale."""
    edges = _mel(low) + (_mel(high) - _mel(low)) / (bands + 1) * np.arange(bands + 2)
    step = 0.5 * rate / (bins - 1)
    first_bin, last_bin = int(1.5 + low / step), int(high / step)
    weights = np.zeros((bins, bands + 2))
    for frequency_bin in range(first_bin, min(last_bin, bins - 1) + 1):
        mel = _mel(frequency_bin * step)
        band = min(int(np.searchsorted(edges[1:], mel, side="left")), bands)
        share = (edges[band + 1] - mel) / (edges[band + 1] - edges[band])
        weights[frequency_bin, band], weights[frequency_bin, band + 1] = share, 1 - share
    band_weights: Array = weights[np.newaxis, :, 1 : bands + 1].astype(np.float32)
    return band_weights


def _cosines(bands: int, count: int) -> Array:
    """Return the matrix (1, bands, count) of the discrete cosine transform."""
    angles = np.pi / bands * np.outer(np.arange(bands) + 0.5, np.arange(count))
    matrix: Array = (np.sqrt(2.0 / bands) * np.cos(angles))[np.newaxis].astype(np.float32)
    return matrix
