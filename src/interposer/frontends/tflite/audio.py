"""TFLite converters for features of audio: spectrograms, and cepstral coefficients on the mel scale."""

from __future__ import annotations

from interposer.core.types import Dim
from interposer.frontends.audio import cepstrum, spectrogram
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operator
from interposer.ir.graph import Value

__all__: list[str] = []


@operator("AudioSpectrogram", custom=True)
def audio_spectrogram(node: Node) -> Value:
    """Convert AudioSpectrogram: the short-time Fourier transform of each channel with a periodic Hann window.

    The length of the transform is the next power of two of the window's length.
    """
    window, stride = node.option("window_size", int), node.option("stride", int)
    if not 2 <= window <= 1 << 20 or stride < 1:
        node.fail(f"the window has {window} elements and the stride {stride}; expected at least 2 and 1")
    x = node.value(0, rank=2)
    samples, channels = x.known.shape
    if isinstance(samples, Dim) or isinstance(channels, Dim) or samples < window:
        node.fail(f"input 0 has shape {x.known.shape}; expected at least {window} samples")
    return spectrogram(node, x, window, stride, squared=node.option("magnitude_squared", bool, False))


@operator("Mfcc", custom=True)
def mel_frequency_cepstrum(node: Node) -> Value:
    """Convert Mfcc: the discrete cosine transform of the logarithms of energies in bands on the mel scale."""
    rate = node.integer_of(1, "the sample rate")
    low, high = node.option("lower_frequency_limit", float, 20.0), node.option("upper_frequency_limit", float, 4000.0)
    bands, count = node.option("filterbank_channel_count", int, 40), node.option("dct_coefficient_count", int, 13)
    x = node.value(0, rank=3)
    bins = x.known.shape[2]
    if isinstance(bins, Dim) or bins < 2 or not 0 <= low < high or rate < 1:
        node.fail(f"a spectrum of {bins} frequencies up to {high} from {low} Hz, at {rate} Hz, has no mel bands")
    if not 1 <= count <= bands <= 1 << 12:
        node.fail(f"{count} coefficients of {bands} bands; expected 1 to the number of bands")
    return cepstrum(node, x, rate, bands, count, (low, high))
