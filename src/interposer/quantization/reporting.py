"""Making the report of a quantization from its decisions and observers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

import numpy as np

from interposer.core.records import dataclass
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.kernels.fixedpoint import dequantize
from interposer.ops.control import Constant, Input, Output
from interposer.quantization.decisions import Decisions
from interposer.quantization.layer_report import LayerReport, OutputReport
from interposer.quantization.observers import Observer
from interposer.quantization.report import QuantizationReport
from interposer.quantization.rules import is_clamp
from interposer.quantization.samples import Samples
from interposer.quantization.statistics import SignalToNoise
from interposer.quantization.storage import Stores

__all__ = ["Settings", "reported", "storage_reported"]

_SHOWN_BINS: Final = 64
_FEW_SAMPLES: Final = 10


@dataclass(frozen=True)
class Settings:
    """The arguments of `quantize` that a report shows."""

    scheme: str
    algorithm: str
    observer: str
    percentile: float
    per_channel: bool
    correct_bias: bool
    keep_types: bool
    output_format: str | None = None


def reported(
    network: Network,
    decisions: Decisions,
    settings: Settings,
    observers: Mapping[Value, Observer],
    ratios: Mapping[str, SignalToNoise],
    samples: Samples,
    already: int = 0,
) -> QuantizationReport:
    """Return the report of a quantization of a float network, which was observed on these samples.

    `already` is the number of layers that were quantized before.

    `observers` and `ratios` are empty without data; `ratios` has the errors of the quantized network by value.
    """
    layers = _layers(network)
    return QuantizationReport(
        network.name,
        settings.scheme,
        asdict(settings),
        len(samples),
        tuple(_of_layer(layer, decisions, observers, ratios) for layer in layers),
        _outputs(network, ratios),
        (*_notes_on_samples(samples), *_notes_on_layers(already)),
    )


def _notes_on_layers(already: int) -> tuple[str, ...]:
    """Return a remark if layers were quantized before, and stay as they are."""
    if not already:
        return ()
    return (f"layers that were quantized already, and stay as they are: {already}",)


def _notes_on_samples(samples: Samples) -> tuple[str, ...]:
    """Return a remark if ranges follow from few values; a sample with a batch of images counts as so many."""
    batch = max((len(array) for array in samples[0].values() if array.ndim), default=1) if samples else 0
    if not 0 < len(samples) * batch < _FEW_SAMPLES:
        return ()
    return (
        f"the ranges are those of {len(samples)} sample{'s'[: len(samples) != 1]}, and values of other inputs may lie "
        f"outside; give {_FEW_SAMPLES} samples or more that are like the inputs in use",
    )


def storage_reported(
    network: Network,
    scheme: str,
    block_size: int,
    stores: Stores,
    ratios: Mapping[str, SignalToNoise],
    samples: int,
    already: int = 0,
) -> QuantizationReport:
    """Return the report of a network whose constants are stored in fewer bits; see `reported`."""
    settings = {"scheme": scheme, "block_size": block_size}
    layers = tuple(_of_stored_layer(layer, stores, ratios) for layer in _layers(network))
    outputs, notes = _outputs(network, ratios), _notes_on_layers(already)
    return QuantizationReport(network.name, scheme, settings, samples, layers, outputs, notes)


def _of_stored_layer(layer: Layer, stores: Stores, ratios: Mapping[str, SignalToNoise]) -> LayerReport:
    ratio = ratios.get(layer.outputs[0].name) if layer.outputs else None
    weights = SignalToNoise()
    if layer in stores.errors:
        weights.add(*stores.errors[layer])
    return LayerReport(
        layer.name,
        layer.kind,
        stores.reasons.get(layer, "") if layer not in stores.layers else "",
        stores.layers.get(layer),
        snr=None if ratio is None else ratio.decibels,
        weights_snr=weights.decibels if layer in stores.errors else None,
    )


def _layers(network: Network) -> list[Layer]:
    return [layer for layer in network.graph.topological() if not isinstance(layer.op, Constant | Input | Output)]


def _outputs(network: Network, ratios: Mapping[str, SignalToNoise]) -> tuple[OutputReport, ...]:
    named_ratios = [(layer.name, ratios.get(layer.values[0].name)) for layer in network.graph.outputs]
    return tuple(OutputReport(name, ratio.decibels, ratio.cosine) for name, ratio in named_ratios if ratio is not None)


def _of_layer(
    layer: Layer, decisions: Decisions, observers: Mapping[Value, Observer], ratios: Mapping[str, SignalToNoise]
) -> LayerReport:
    first_output = layer.outputs[0] if layer.outputs else None
    observer = None if first_output is None else observers.get(first_output)
    ratio = None if first_output is None or _is_fused(layer, decisions) else ratios.get(first_output.name)
    has_values = observer is not None and observer.count
    return LayerReport(
        layer.name,
        layer.kind,
        decisions.reasons.get(layer, "") if layer not in decisions.rules else "",
        None if first_output is None or layer not in decisions.rules else decisions.quantizations.get(first_output),
        observer.low if observer is not None and has_values else 0.0,
        observer.high if observer is not None and has_values else 0.0,
        None if ratio is None else ratio.decibels,
        _weights_ratio(layer, decisions),
        _bins(observer) if observer is not None and has_values else (),
    )


def _is_fused(layer: Layer, decisions: Decisions) -> bool:
    """Return True if a clamp alone reads the result, and so values that it clamps may be saturated already."""
    uses = [use.layer for value in layer.outputs for use in value.uses]
    return len(uses) == 1 and is_clamp(uses[0].op) and layer in decisions.rules


def _weights_ratio(layer: Layer, decisions: Decisions) -> float | None:
    rule = decisions.rules.get(layer)
    if rule is None or rule.weights_index is None:
        return None
    stored_weights, weights = decisions.stored[layer][0], layer.inputs[rule.weights_index]
    assert weights is not None and weights.constant is not None, "quantized weights are constant"
    ratio = SignalToNoise()
    ratio.add(dequantize(stored_weights.array, stored_weights.quantization), weights.constant)
    return ratio.decibels


def _bins(observer: Observer) -> tuple[int, ...]:
    """Return the counts of an observer in `_SHOWN_BINS` bins between its smallest and its largest value."""
    histogram = observer.histogram
    counts, _ = np.histogram(
        histogram.centers,
        _SHOWN_BINS,
        (observer.low, max(observer.high, observer.low + 1e-30)),
        weights=histogram.counts,
    )
    return tuple(int(count) for count in counts)
