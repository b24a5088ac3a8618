"""The report of a quantization: for each layer how it was quantized or why not, and the error of its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from interposer.core.records import dataclass
from interposer.quantization.layer_report import LayerReport, OutputReport
from interposer.quantization.page import html
from interposer.quantization.statistics import decibels

__all__ = ["QuantizationReport"]


@dataclass(frozen=True)
class QuantizationReport:
    """The result of a quantization, layer by layer.

    `settings` has the arguments by name. `outputs` is empty without data. `notes` has sentences about what is probably
    not wanted, such as too few samples.
    """

    network: str
    scheme: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 0
    layers: tuple[LayerReport, ...] = ()
    outputs: tuple[OutputReport, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def quantized(self) -> tuple[LayerReport, ...]:
        """The layers that compute on quantized values."""
        return tuple(layer for layer in self.layers if layer.is_quantized)

    @property
    def left(self) -> tuple[LayerReport, ...]:
        """The layers that stay in float."""
        return tuple(layer for layer in self.layers if not layer.is_quantized)

    @property
    def summary(self) -> str:
        """The number of quantized layers, and the scheme."""
        return f"{len(self.quantized)} of {len(self.layers)} layers quantized ({self.scheme})"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-compatible data."""
        return {
            "network": self.network,
            "scheme": self.scheme,
            "settings": dict(self.settings),
            "samples": self.samples,
            "quantized": len(self.quantized),
            "notes": list(self.notes),
            "outputs": [output.to_dict() for output in self.outputs],
            "layers": [layer.to_dict() for layer in self.layers],
        }

    def to_html(self) -> str:
        """Return a self-contained HTML page that shows the report, with a drawn histogram for each layer."""
        settings = {**self.settings, "samples": self.samples}
        return html(self.network, self.summary, self.layers, self.outputs, self.notes, settings)

    def __str__(self) -> str:
        lines = [f"{self.network}: {self.summary}"]
        lines += [
            f"  output {output.name!r}: signal-to-noise ratio {decibels(output.snr)}, cosine {output.cosine:.6f}"
            for output in self.outputs
        ]
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {line}" for line in _table(self.layers)]
        return "\n".join(lines)


def _table(layers: tuple[LayerReport, ...]) -> list[str]:
    rows = [["layer", "kind", "range", "quantization", "snr", "weights", ""]]
    rows += [_row(layer) for layer in layers]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows] if layers else []


def _row(layer: LayerReport) -> list[str]:
    q = layer.quantization
    quantization = "" if q is None else f"{q.scale:.6g}, {q.zero_point}"
    bounds = f"{layer.low:.4g} to {layer.high:.4g}"
    ratios = ("" if ratio is None else decibels(ratio) for ratio in (layer.snr, layer.weights_snr))
    return [layer.name, layer.kind, bounds, quantization, *ratios, f"float: {layer.reason}" if layer.reason else ""]
