"""Comparing a quantized network with the float network that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from interposer.core.types import Array
from interposer.ir.network import Network
from interposer.quantization.calibration import Runs, observed_values, values_of_samples
from interposer.quantization.samples import Samples
from interposer.quantization.statistics import SignalToNoise, real_values

__all__ = ["compared"]

_SAMPLES: Final = 16
"""The largest number of samples on which the networks are compared."""


def compared(
    network: Network, quantized: Network, samples: Samples, runs: Runs, limit: int = _SAMPLES
) -> dict[str, SignalToNoise]:
    """Return the signal-to-noise ratios of the values that both networks have, by name, on up to `limit` samples."""
    quantized_values = {
        value.name: value for layer in quantized.graph for value in layer.outputs if not value.is_constant
    }
    names = [value.name for value in observed_values(network) if value.name in quantized_values]
    ratios = {name: SignalToNoise() for name in names}

    def add(expected: Mapping[str, Array], arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            ratios[name].add(real_values(array, quantized_values[name].known), expected[name])

    values_of_samples([network, quantized], names, samples[:limit], add, runs, "comparing")
    return ratios
