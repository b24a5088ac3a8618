"""Matrices for features of audio: the window of a spectrogram, bands on the mel scale, and cosine transforms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array

__all__ = ["LEAST_ENERGY", "cosines", "hann", "mel_bands"]

LEAST_ENERGY = np.float32(1e-12)
"""What stands for smaller energies of bands, which have no logarithm."""


def hann(window: int, length: int) -> Array:
    """Return a periodic Hann window, followed by zeros up to `length`."""
    values = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    return np.pad(values, (0, length - window)).astype(np.float32)


def _mel(frequency: float | NDArray[np.float64]) -> NDArray[np.float64]:
    return 1127.0 * np.log1p(np.asarray(frequency, np.float64) / 700.0)


def mel_bands(bins: int, rate: int, bands: int, low: float, high: float) -> Array:
    """Return the weights (1, bins, bands) of each frequency in overlapping triangular bands on the mel scale."""
    edges = _mel(low) + (_mel(high) - _mel(low)) / (bands + 1) * np.arange(bands + 2)
    step = 0.5 * rate / (bins - 1)
    first, last = int(1.5 + low / step), int(high / step)
    weights = np.zeros((bins, bands + 2))
    for frequency_bin in range(first, min(last, bins - 1) + 1):
        mel = _mel(frequency_bin * step)
        band = min(int(np.searchsorted(edges[1:], mel, side="left")), bands)
        share = (edges[band + 1] - mel) / (edges[band + 1] - edges[band])
        weights[frequency_bin, band], weights[frequency_bin, band + 1] = share, 1 - share
    band_weights: Array = weights[np.newaxis, :, 1 : bands + 1].astype(np.float32)
    return band_weights


def cosines(bands: int, count: int) -> Array:
    """Return the matrix (1, bands, count) of the discrete cosine transform."""
    angles = np.pi / bands * np.outer(np.arange(bands) + 0.5, np.arange(count))
    matrix: Array = (np.sqrt(2.0 / bands) * np.cos(angles))[np.newaxis].astype(np.float32)
    return matrix
