"""The entries of a quantization's report: one for each layer, and one for each output."""

from __future__ import annotations

from typing import Any

from interposer.core.records import dataclass
from interposer.core.types import Quantization
from interposer.quantization.statistics import finite_or_none

__all__ = ["LayerReport", "OutputReport"]


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
        quantization = self.quantization
        return {
            "name": self.name,
            "kind": self.kind,
            "quantized": self.is_quantized,
            "reason": self.reason,
            "scale": None if quantization is None else quantization.scale,
            "zero_point": None if quantization is None else quantization.zero_point,
            "low": self.low,
            "high": self.high,
            "snr": finite_or_none(self.snr),
            "weights_snr": finite_or_none(self.weights_snr),
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
        return {"name": self.name, "snr": finite_or_none(self.snr), "cosine": self.cosine}
