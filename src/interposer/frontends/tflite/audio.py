"""TFLite converters for features of audio: spectrograms, and cepstral coefficients on the mel scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array, Dim
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value
from interposer.ops.elementwise import ElementwiseUnary, Maximum, UnaryOperation
from interposer.ops.matmul import BatchMatMul
from interposer.ops.rearrange import Pad, Transpose
from interposer.ops.reduction import Reduce, ReduceOperation
from interposer.ops.reshape import Reshape
from interposer.ops.spectral import Stft

__all__: list[str] = []

_LEAST_ENERGY = np.float32(1e-12)


@operator("AudioSpectrogram", custom=True)
def audio_spectrogram(node: Node) -> list[Value]:
    """Convert AudioSpectrogram: the short-time Fourier transform of each channel with a periodic Hann window.

    The length of the transform is the next power of two of the window's length.
    """
    window, stride = node.option("window_size", int), node.option("stride", int)
    if not 2 <= window <= 1 << 20 or stride < 1:
        node.fail(f"the window has {window} elements and the stride {stride}; expected at least 2 and 1")
    length = 1 << (window - 1).bit_length()
    x = node.input(0, rank=2)
    samples, channels = x.known.shape
    if isinstance(samples, Dim) or isinstance(channels, Dim) or samples < window:
        node.fail(f"input 0 has shape {x.known.shape}; expected at least {window} samples")
    padded = node.add(Pad(((0, 0), (0, length - window))), node.add(Transpose((1, 0)), x))
    signal = node.add(Reshape((channels, samples + length - window, 1)), padded)
    spectrum = node.add(Stft(frame_step=stride, frame_length=length), signal, node.constant(_hann(window, length)))
    squared = node.option("magnitude_squared", bool, False)
    operation = ReduceOperation.SUM_SQUARE if squared else ReduceOperation.L2
    return node.result(Reduce((-1,), operation=operation), spectrum)


def _hann(window: int, length: int) -> Array:
    """Return a periodic Hann window, followed by zeros up to `length`."""
    values = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    return np.pad(values, (0, length - window)).astype(np.float32)


@operator("Mfcc", custom=True)
def mel_frequency_cepstrum(node: Node) -> list[Value]:
    """Convert Mfcc: the discrete cosine transform of the logarithms of energies in bands on the mel scale."""
    rate = node.number(1, "the sample rate")
    low, high = node.option("lower_frequency_limit", float, 20.0), node.option("upper_frequency_limit", float, 4000.0)
    bands, count = node.option("filterbank_channel_count", int, 40), node.option("dct_coefficient_count", int, 13)
    x = node.input(0, rank=3)
    bins = x.known.shape[2]
    if isinstance(bins, Dim) or bins < 2 or not 0 <= low < high or rate < 1:
        node.fail(f"a spectrum of {bins} frequencies up to {high} from {low} Hz, at {rate} Hz, has no mel bands")
    if not 1 <= count <= bands <= 1 << 12:
        node.fail(f"{count} coefficients of {bands} bands; expected 1 to the number of bands")
    magnitudes = node.add(ElementwiseUnary(UnaryOperation.SQRT), x)
    energies = node.add(BatchMatMul(), magnitudes, node.constant(_mel_bands(bins, rate, bands, low, high)))
    floored = node.add(Maximum(), energies, node.constant(np.full((1, 1, 1), _LEAST_ENERGY)))
    logarithms = node.add(ElementwiseUnary(UnaryOperation.LOG), floored)
    return node.result(BatchMatMul(), logarithms, node.constant(_cosines(bands, count)))


def _mel(frequency: float | NDArray[np.float64]) -> NDArray[np.float64]:
    return 1127.0 * np.log1p(np.asarray(frequency, np.float64) / 700.0)


def _mel_bands(bins: int, rate: int, bands: int, low: float, high: float) -> Array:
    """Return the weights (1, bins, bands) of each frequency in overlapping triangular bands on the mel scale."""
    edges = _mel(low) + (_mel(high) - _mel(low)) / (bands + 1) * np.arange(bands + 2)
    step = 0.5 * rate / (bins - 1)
    first, last = int(1.5 + low / step), int(high / step)
    weights = np.zeros((bins, bands + 2))
    for number in range(first, min(last, bins - 1) + 1):
        mel = _mel(number * step)
        band = min(int(np.searchsorted(edges[1:], mel, side="left")), bands)
        share = (edges[band + 1] - mel) / (edges[band + 1] - edges[band])
        weights[number, band], weights[number, band + 1] = share, 1 - share
    result: Array = weights[np.newaxis, :, 1 : bands + 1].astype(np.float32)
    return result


def _cosines(bands: int, count: int) -> Array:
    """Return the matrix (1, bands, count) of the discrete cosine transform."""
    angles = np.pi / bands * np.outer(np.arange(bands) + 0.5, np.arange(count))
    result: Array = (np.sqrt(2.0 / bands) * np.cos(angles))[np.newaxis].astype(np.float32)
    return result
