"""TensorFlow converters for features of audio: spectrograms, and cepstral coefficients on the mel scale."""

from __future__ import annotations

from interposer.core.errors import ParseError
from interposer.core.types import DataType
from interposer.frontends.audio import cepstrum, spectrogram
from interposer.frontends.tensorflow.node import Node
from interposer.frontends.tensorflow.tensorflow_converters import operator
from interposer.ir.graph import Value

__all__: list[str] = []

_LONGEST = 1 << 20


@operator("AudioSpectrogram")
def audio_spectrogram(node: Node) -> Value:
    """Convert AudioSpectrogram: the magnitudes of short-time Fourier transforms with a periodic Hann window.

    The length of the transform is the next power of two of the window's length.
    """
    window, stride, x = node.integer("window_size"), node.integer("stride"), node.value(0)
    if not 2 <= window <= _LONGEST or stride < 1:
        raise ParseError(f"its window has {window} elements and its stride {stride}; expected at least 2 and 1")
    if x.known.rank != 2:
        raise ParseError(f"its input has the shape {x.known.shape}; expected samples and channels")
    samples, _ = node.concrete(x.known.shape, "input")
    if samples < window:
        node.unsupported(f"its input has {samples} samples, less than its window of {window}")
    return spectrogram(node, x, window, stride, squared=node.flag("magnitude_squared", False))


@operator("Mfcc")
def mel_frequency_cepstrum(node: Node) -> Value:
    """Convert Mfcc: the discrete cosine transform of the logarithms of energies in bands on the mel scale."""
    x, rate = node.value(0), int(node.number_of(1, "sample rate"))
    low, high = node.number("lower_frequency_limit", 20.0), node.number("upper_frequency_limit", 4000.0)
    bands, count = node.integer("filterbank_channel_count", 40), node.integer("dct_coefficient_count", 13)
    if x.known.rank != 3 or not 0 <= low < high or rate < 1:
        raise ParseError(
            f"its spectrum has the shape {x.known.shape}, and its limits are {low} and {high} at {rate} Hz"
        )
    bins = node.known(x.known.shape[2], "number of frequencies")
    if bins < 2 or not 1 <= count <= bands <= 1 << 12:
        raise ParseError(f"it has {count} coefficients of {bands} bands of {bins} frequencies")
    return cepstrum(node, node.cast(x, DataType.FLOAT32), rate, bands, count, (low, high))
