"""The report of a quantization: for each layer how it was quantized or why not, and the error of its results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interposer.core.types import Array, Quantization

__all__ = ["LayerReport", "OutputReport", "QuantizationReport", "SignalToNoise"]


class SignalToNoise:
    """The power of a signal and of the error of another one, over several arrays."""

    def __init__(self) -> None:
        self.signal = self.noise = self.other = self.product = 0.0

    def add(self, value: Array, requested: Array) -> None:
        """Add an array and the array that it should be equal to; values that are not finite are ignored."""
        real, expected = (np.asarray(item, np.float64).reshape(-1) for item in (value, requested))
        finite: NDArray[np.bool_] = np.isfinite(real) & np.isfinite(expected)
        real, expected = real[finite], expected[finite]
        self.signal += float(expected @ expected)
        self.other += float(real @ real)
        self.product += float(real @ expected)
        self.noise += float(((real - expected) ** 2).sum())

    @property
    def decibels(self) -> float:
        """The signal-to-noise ratio in dB; infinite without an error."""
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def cosine(self) -> float:
        """The cosine of the angle between both signals; 1 if they are equal up to a factor."""
        length = math.sqrt(self.signal * self.other)
        return self.product / length if length else float(self.signal == self.other)


@dataclass(frozen=True)
class LayerReport:
    """How one layer was quantized.

    `reason` says why the layer stays in float; it is empty for a quantized layer. `low` and `high` are the observed
    bounds of the first result, and `snr` is its signal-to-noise ratio in dB, compared with the float network; None if
    there was no data, or if the layer is fused with the clamp after it. `weights_snr` is that of the weights.
    `histogram` has the counts of the values in bins of equal width from `low` to `high`.
    """

    name: str
    kind: str
    reason: str = ""
    quantization: Quantization | None = None
    low: float = 0.0
    high: float = 0.0
    snr: float | None = None
    weights_snr: float | None = None
    histogram: tuple[int, ...] = ()

    @property
    def is_quantized(self) -> bool:
        """True if the layer computes on quantized values."""
        return not self.reason

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data; an infinite ratio is None."""
        q = self.quantization
        return {
            "name": self.name,
            "kind": self.kind,
            "quantized": self.is_quantized,
            "reason": self.reason,
            "scale": None if q is None else q.scale,
            "zero_point": None if q is None else q.zero_point,
            "low": self.low,
            "high": self.high,
            "snr": _finite(self.snr),
            "weights_snr": _finite(self.weights_snr),
            "histogram": list(self.histogram),
        }


@dataclass(frozen=True)
class OutputReport:
    """The error of an output of the quantized network: signal-to-noise ratio in dB, and cosine similarity."""

    name: str
    snr: float
    cosine: float

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data; an infinite ratio is None."""
        return {"name": self.name, "snr": _finite(self.snr), "cosine": self.cosine}


@dataclass(frozen=True)
class QuantizationReport:
    """The result of a quantization, layer by layer.

    `settings` has the arguments by name. `outputs` is empty without data.
    """

    network: str
    scheme: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 0
    layers: tuple[LayerReport, ...] = ()
    outputs: tuple[OutputReport, ...] = ()

    @property
    def quantized(self) -> tuple[LayerReport, ...]:
        """The layers that compute on quantized values."""
        return tuple(layer for layer in self.layers if layer.is_quantized)

    @property
    def left(self) -> tuple[LayerReport, ...]:
        """The layers that stay in float."""
        return tuple(layer for layer in self.layers if not layer.is_quantized)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data."""
        return {
            "network": self.network,
            "scheme": self.scheme,
            "settings": dict(self.settings),
            "samples": self.samples,
            "quantized": len(self.quantized),
            "outputs": [output.to_dict() for output in self.outputs],
            "layers": [layer.to_dict() for layer in self.layers],
        }

    def __str__(self) -> str:
        lines = [f"{self.network}: {len(self.quantized)} of {len(self.layers)} layers quantized ({self.scheme})"]
        lines += [
            f"  output {item.name!r}: signal-to-noise ratio {_decibels(item.snr)}, cosine {item.cosine:.6f}"
            for item in self.outputs
        ]
        lines += [f"  {line}" for line in _table(self.layers)]
        return "\n".join(lines)


def _table(layers: tuple[LayerReport, ...]) -> list[str]:
    rows = [["layer", "kind", "range", "quantization", "snr", "weights", ""]]
    rows += [_row(layer) for layer in layers]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows] if layers else []


def _row(layer: LayerReport) -> list[str]:
    q = layer.quantization
    shown = "" if q is None else f"{q.scale:.6g}, {q.zero_point}"
    bounds = f"{layer.low:.4g} to {layer.high:.4g}"
    ratios = ("" if item is None else _decibels(item) for item in (layer.snr, layer.weights_snr))
    return [layer.name, layer.kind, bounds, shown, *ratios, f"float: {layer.reason}" if layer.reason else ""]


def _decibels(ratio: float) -> str:
    return "exact" if ratio == math.inf else f"{ratio:.1f} dB"


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
