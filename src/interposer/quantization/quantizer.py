"""`quantize`: a quantized network from a float network and calibration data."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from interposer.backend import Options
from interposer.backend.ids import listed_ids
from interposer.core.errors import InvalidArgumentError, as_float, as_int, did_you_mean, expect, expect_names
from interposer.core.records import dataclass
from interposer.core.types import DataType
from interposer.file_formats import Format
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output
from interposer.quantization.armnn import per_tensor, static_ranges
from interposer.quantization.bias_correction import averaged_axes
from interposer.quantization.calibration import Progress, Runs, observe_all, observed_values, silent
from interposer.quantization.decisions import Decisions, Means, Ranges, decide
from interposer.quantization.equalization import equalize as equalized
from interposer.quantization.evaluation import compared
from interposer.quantization.files import read_samples
from interposer.quantization.observers import Observer, observer_named
from interposer.quantization.preparing import prepared
from interposer.quantization.quantized_already import check_float
from interposer.quantization.rebuilding import rebuilt
from interposer.quantization.report import QuantizationReport
from interposer.quantization.reporting import Settings, reported, storage_reported
from interposer.quantization.samples import Samples, samples_of
from interposer.quantization.schemes import SCHEMES, STORAGE, Scheme, scheme_of
from interposer.quantization.statistics import SignalToNoise
from interposer.quantization.storage import stored_network
from interposer.quantization.written import check_float_layers, output_format_named, unwritable
from interposer.runtime import Runtime
from interposer.session import default_runtime
from interposer.session.shapes import Shapes
from interposer.session.source import Source, read_network

__all__ = ["Algorithm", "QuantizedNetwork", "quantize"]

Algorithm = Literal["calibrated", "armnn"]
_ALGORITHMS: Final = ("calibrated", "armnn")
_RANKING_SAMPLES: Final = 4
"""The largest number of samples on which layers are ranked by their errors."""


_DEFAULTS: Final = {"per_channel": None, "correct_bias": True, "keep_types": True}
"""The defaults of the switches that storing constants in fewer bits has no use for."""


class QuantizedNetwork(Network):
    """A network that `quantize` has made, with its report. It is used like any other `Network`."""

    report: QuantizationReport


def quantize(
    source: Source,
    data: Any = None,
    *,
    scheme: str | Scheme = "int8",
    algorithm: Algorithm = "calibrated",
    observer: str = "minmax",
    percentile: float | None = None,
    per_channel: bool | None = None,
    correct_bias: bool = True,
    equalize: bool = False,
    block_size: int | None = None,
    float_layers: Collection[str] = (),
    target: float | None = None,
    output_format: str | None = None,
    keep_types: bool = True,
    backends: Iterable[str] | None = None,
    runtime: Runtime | None = None,
    format: str | None = None,
    shapes: Shapes | None = None,
    progress: Progress = silent,
    model_options: Mapping[str, Options] | None = None,
) -> QuantizedNetwork:
    """Quantize a float network after training, and return the quantized network with a report.

    The float network runs on the calibration data, and the range of each tensor is observed. Then each layer that has
    a form in integers is replaced by a layer on quantized tensors. The other layers stay in float, between `Dequantize`
    and `Quantize` layers; the report has a reason for each. The source is not changed.

    Args:
        source: a network or a model file, in any form that `load` takes.
        data: calibration data: an array or a mapping from input's name to array, with the samples along axis 0, or an
            iterable of samples. A sample is an array, a sequence of arrays in the order of the inputs, or a mapping by
            name. A path names a .npz, .npy or .csv file, or a folder with images, .npz and .npy files.
            `read_samples` reads the same, and can convert images in another way.
            Only ``algorithm="armnn"`` works without data.
        scheme: "int8", "uint8", "int16" (int16 activations and int8 weights), "int8-symmetric", or Arm NN's names of
            them (such as "QAsymmU8"). The schemes "float16", "bfloat16", "weights-int8", "weights-int4" and "dynamic"
            only store constants in fewer bits; they need no data, and with data the report has the errors.
        algorithm: "calibrated" uses the observed ranges and fuses clamps with the layers before them. "armnn" has the
            rules of Arm NN's quantizer: ranges by the kind of layer, which data refines, and one scale for all weights.
        observer: how the range follows from the observed values: "minmax", "moving", "percentile", "entropy" or "mse".
        percentile: the percentage of values in the range, for the observer "percentile" alone; None means 99.99.
        per_channel: whether weights have a scale for each output channel; None means as the scheme says. Weights of
            "uint8" with several scales become int8, which TensorFlow Lite does not combine with uint8 activations.
        correct_bias: subtract the mean error that rounded weights cause in an output channel from the bias. "armnn"
            does not do this.
        equalize: scale the channels between convolutions in a row, so that weights have similar ranges (cross-layer
            equalization). The float network stays the same. It helps where weights have one scale for all channels.
        block_size: the number of weights that share a scale, for the scheme "weights-int4" alone; None means 32.
        float_layers: names of layers, or names of operators such as "Softmax", that stay in float.
        target: the least signal-to-noise ratio of every output in dB. Layers stay in float until it is reached, those
            first whose quantization alone causes the largest error. This quantizes and runs the network once for each
            layer, on up to four samples.
        output_format: the name of the format that the network will be written to, such as "tflite". Layers that its
            files cannot hold in integers stay in float.
        keep_types: inputs and outputs keep their types. False quantizes them too, if a quantized layer reads or
            produces them.
        backends: the backends that run the calibration, as for `load`.
        runtime: the runtime that runs the calibration; None means the default runtime.
        format: the format of the source, as for `load`.
        shapes: shapes of inputs by name, as for `load`.
        progress: a function that is called with the current step, the number of finished steps, and their total.
        model_options: options of the backends that run the calibration, by backend id.

    Raises:
        InvalidArgumentError: an argument is invalid or has no effect with the scheme or observer, `float_layers` has a
            name that no layer has, the network is quantized already, or the data does not fit the inputs, is empty, or
            is not finite.
        UnwritableError: `output_format` has no form of a layer, neither in integers nor in float.
        InterposerError: the network cannot be read or run.

    Example:
        >>> import numpy as np
        >>> import interposer as ip
        >>> network = ip.Network("twice")
        >>> x = network.add_input_layer(0, ip.TensorInfo((1, 2)), name="x")
        >>> y = network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
        >>> samples = np.random.default_rng(0).random((16, 2), np.float32)
        >>> quantized = ip.quantize(network, samples, backends=["CpuRef"])
        >>> [(layer.name, layer.kind) for layer in quantized.graph.topological() if layer.op.executable]
        [('x:quantized', 'Quantize'), ('sum', 'Addition'), ('sum:dequantized', 'Dequantize')]
        >>> len(quantized.report.quantized), len(quantized.report.left)
        (1, 0)
    """
    _check_types(algorithm, runtime, progress)
    flags = {"per_channel": per_channel, "correct_bias": correct_bias, "equalize": equalize, "keep_types": keep_types}
    _check_options(str(scheme), observer, flags, {"percentile": percentile, "block_size": block_size}, target)
    runs = Runs(None if backends is None else list(listed_ids(backends)), runtime, progress, model_options)
    original_network = read_network(source, format, shapes)
    network = prepared(original_network, runtime or default_runtime())
    if equalize:
        equalized(network)
    written_format, float_reasons = output_format_named(output_format), _float_reasons(network, float_layers)
    job = _Job(network, original_network, data, float_reasons, check_float(network), written_format, runs)
    if scheme in STORAGE:
        return _stored(job, str(scheme), 32 if block_size is None else block_size, algorithm)
    chosen_scheme, corrects_bias = _scheme(scheme, algorithm, per_channel), correct_bias and algorithm != "armnn"
    settings = Settings(
        chosen_scheme.name, algorithm, observer, _percentage(percentile), chosen_scheme.per_channel, corrects_bias,
        keep_types, output_format)  # fmt: skip
    return _calibrated(job, chosen_scheme, settings, target)


def _percentage(percentile: float | None) -> float:
    return 99.99 if percentile is None else float(percentile)


def _check_types(algorithm: str, runtime: object, progress: object) -> None:
    if algorithm not in _ALGORITHMS:
        raise InvalidArgumentError(f"unknown algorithm {algorithm!r} (known: {', '.join(_ALGORITHMS)})")
    expect(runtime, Runtime | None, "the runtime must be a Runtime")
    if not callable(progress):
        raise InvalidArgumentError(f"progress must be a function, not {progress!r}")


def _check_options(
    scheme: str,
    observer: str,
    switches: Mapping[str, bool | None],
    numbers: Mapping[str, float | None],
    target: float | None,
) -> None:
    """Raise `InvalidArgumentError` for options of the wrong type, and for those without an effect.

    `switches` and `numbers` are arguments of `quantize` by their names.
    """
    for name, switch in switches.items():
        expect(switch, bool | None if name == "per_channel" else bool, f"{name} must be True or False")
    for name, number in ({"target": target} | dict(numbers)).items():
        if number is not None and math.isnan(as_float(number, f"{name} must be a number")):
            raise InvalidArgumentError(f"{name} must be a number, not nan")
    if numbers["percentile"] is not None and observer != "percentile":
        raise InvalidArgumentError(f"percentile is for the observer 'percentile', not for {observer!r}")
    if numbers["block_size"] is not None and scheme != "weights-int4":
        raise InvalidArgumentError(f"block_size is for the scheme 'weights-int4', not for {scheme!r}")
    if scheme not in STORAGE:
        return
    changed_options = {"observer": observer != "minmax", "target": target is not None}
    changed_options |= {name: switch is not _DEFAULTS[name] for name, switch in switches.items() if name in _DEFAULTS}
    for name in (name for name, is_changed in changed_options.items() if is_changed):
        raise InvalidArgumentError(f"{name} is for schemes with integer layers; {scheme!r} only stores constants")


@dataclass(frozen=True)
class _Job:
    """What is quantized: the prepared network, the network that it was made from, and calibration data for it.

    `float_reasons` has the layers that stay in float by request, `already` is the number of layers that were quantized
    before, and `written_format` the format to write, if it is known.
    """

    network: Network
    original: Network
    data: Any
    float_reasons: dict[Layer, str]
    already: int
    written_format: Format | None
    runs: Runs

    @property
    def samples(self) -> Samples | None:
        """The samples of the calibration data; None without data. They may be read from files."""
        if isinstance(self.data, str | os.PathLike):
            return read_samples(self.original, self.data)
        return None if self.data is None else samples_of(self.original, self.data)


def _calibrated(job: _Job, scheme: Scheme, settings: Settings, target: float | None) -> QuantizedNetwork:
    """Return the network with layers in integers, whose ranges follow from the calibration data."""
    _Quantizer(job, scheme, settings, {}, {}, None).check_writable()
    samples = job.samples
    if samples is None and settings.algorithm != "armnn":
        raise InvalidArgumentError("there is no calibration data; give at least one sample")
    create_observer = observer_named(settings.observer, settings.percentile)
    observations = _observed(job.network, samples, create_observer, settings.correct_bias, job.runs)
    quantizer = _Quantizer(job, scheme, settings, *observations, samples)
    return quantizer.quantize(job.float_reasons if target is None else quantizer.float_reasons_for(target))


@dataclass(frozen=True)
class _Quantizer:
    """Quantizes a prepared float network, given the observers of its values."""

    job: _Job
    scheme: Scheme
    settings: Settings
    observers: Mapping[Value, Observer]
    means: Means
    samples: Samples | None

    def float_reasons_for(self, target: float) -> dict[Layer, str]:
        """Return the layers that stay in float so that every output has a signal-to-noise ratio of `target` dB.

        The least number of layers beside those that stay in float by request is found by bisection.
        """
        if self.samples is None:
            raise InvalidArgumentError("a target needs calibration data, to compare the quantized network with")
        reason, float_reasons = f"left in float for the target of {target:g} dB", self.job.float_reasons
        rules = self._decided(float_reasons, self._ranges()).rules
        layers = [layer for layer, rule in rules.items() if not rule.passive]
        ratios_alone = {}
        for number, layer in enumerate(layers):
            self.job.runs.progress("ranking layers", number, len(layers))
            ratios_alone[layer] = self._worst(
                dict(float_reasons) | {other: reason for other in layers if other is not layer}
            )
        worst_first = sorted(layers, key=lambda layer: ratios_alone[layer])
        low, high = 0, len(worst_first)
        while low < high:
            middle = (low + high) // 2
            if self._worst(dict(float_reasons) | dict.fromkeys(worst_first[:middle], reason)) >= target:
                high = middle
            else:
                low = middle + 1
        return dict(float_reasons) | dict.fromkeys(worst_first[:low], reason)

    def _worst(self, float_reasons: Mapping[Layer, str]) -> float:
        """Return the least signal-to-noise ratio of an output in dB if the layers `float_reasons` stay in float."""
        network = rebuilt(self.job.network, self._decided(float_reasons, self._ranges()), keep_types=True)
        runs = replace(self.job.runs, progress=silent)
        ratios = compared(self.job.network, network, self.samples or [], runs, limit=_RANKING_SAMPLES)
        names = [layer.values[0].name for layer in self.job.network.graph.outputs]
        return min((ratios[name].decibels for name in names if name in ratios), default=math.inf)

    def check_writable(self) -> None:
        """Raise `UnwritableError` if the format to write has no form of a layer, whatever the ranges will be."""
        network, written_format = self.job.network, self.job.written_format
        if written_format is None:
            return
        rules = self._decided(self.job.float_reasons, dict.fromkeys(observed_values(network), (-1.0, 1.0))).rules
        check_float_layers(
            (layer for layer in network.graph.topological() if layer not in rules), written_format, network.name
        )

    def _decided(self, float_reasons: Mapping[Layer, str], ranges: Ranges) -> Decisions:
        """Return the decisions, with the layers in float that the format to write cannot hold in integers."""
        reasons, fuse = dict(float_reasons), self.settings.algorithm != "armnn"
        while True:
            decisions = decide(self.job.network, self.scheme, ranges, reasons, fuse_clamps=fuse, means=self.means)
            refused_layers = self._unwritable(decisions)
            if not refused_layers:
                return decisions
            reasons |= refused_layers

    def _unwritable(self, decisions: Decisions) -> dict[Layer, str]:
        if self.job.written_format is None:
            return {}
        layers = {layer.name: layer for layer in decisions.rules}
        quantized_network = rebuilt(self.job.network, decisions, self.settings.keep_types)
        return {
            layers[name]: reason
            for name, reason in unwritable(quantized_network, layers.keys(), self.job.written_format).items()
        }

    def quantize(self, float_reasons: Mapping[Layer, str]) -> QuantizedNetwork:
        """Return the quantized network; the layers `float_reasons` stay in float for the given reasons."""
        decisions = self._decided(float_reasons, self._ranges())
        quantized_network = QuantizedNetwork(self.job.network.name)
        rebuilt(self.job.network, decisions, self.settings.keep_types, quantized_network)
        quantized_network.report = reported(
            self.job.network,
            decisions,
            self.settings,
            self.observers,
            self._ratios(decisions),
            self.samples or [],
            self.job.already,
        )
        return quantized_network

    def _ratios(self, decisions: Decisions) -> dict[str, SignalToNoise]:
        if self.samples is None:
            return {}
        return compared(
            self.job.network, rebuilt(self.job.network, decisions, keep_types=True), self.samples, self.job.runs
        )

    def _ranges(self) -> Ranges:
        levels = 2**self.scheme.activations.bits
        observed_ranges = {
            value: (-math.inf, math.inf) if observer.infinite else observer.range(levels)
            for value, observer in self.observers.items()
            if observer.count or observer.infinite
        }
        return (
            static_ranges(self.job.network) | observed_ranges if self.settings.algorithm == "armnn" else observed_ranges
        )


def _observed(
    network: Network, samples: Samples | None, create_observer: Callable[[], Observer], correct_bias: bool, runs: Runs
) -> tuple[dict[Value, Observer], Means]:
    """Return an observer for each float32 value after all samples, and the means of channels if the bias needs them."""
    if samples is None:
        return {}, {}
    axes = averaged_axes(network) if correct_bias else {}
    observers, means_of_value = observe_all(network, samples, create_observer, axes, runs)
    return observers, {
        value: channel_means.means for value, channel_means in means_of_value.items() if channel_means.means is not None
    }


def _stored(job: _Job, scheme: str, block_size: int, algorithm: str) -> QuantizedNetwork:
    """Return a network whose constants are stored in fewer bits, with its report."""
    if algorithm == "armnn":
        raise InvalidArgumentError(f"Arm NN's algorithm has no scheme {scheme!r} (it has: {', '.join(SCHEMES)})")
    block_size = as_int(block_size, "the block size must be an integer")
    if block_size < 1:
        raise InvalidArgumentError(f"the block size must be a positive integer, not {block_size!r}")
    network, quantized_network = job.network, QuantizedNetwork(job.network.name)
    stores = stored_network(
        network, scheme, block_size, _float_reasons_of_stored(job, scheme, block_size), quantized_network
    )
    samples = job.samples or []
    ratios = compared(network, quantized_network, samples, job.runs) if samples else {}
    quantized_network.report = storage_reported(network, scheme, block_size, stores, ratios, len(samples), job.already)
    return quantized_network


def _float_reasons_of_stored(job: _Job, scheme: str, block_size: int) -> dict[Layer, str]:
    """Return the layers whose constants stay in float32, by request or as the format cannot hold them otherwise."""
    if job.written_format is None:
        return job.float_reasons
    check_float_layers(job.network.graph.topological(), job.written_format, job.network.name)
    written_network = Network(job.network.name)
    stores = stored_network(job.network, scheme, block_size, job.float_reasons, written_network)
    layers = {layer.name: layer for layer in stores.layers}
    refused_layers = unwritable(written_network, layers.keys(), job.written_format)
    return job.float_reasons | {layers[name]: reason for name, reason in refused_layers.items()}


def _scheme(scheme: str | Scheme, algorithm: str, per_channel: bool | None) -> Scheme:
    chosen_scheme = scheme_of(scheme)
    if algorithm == "armnn":
        chosen_scheme = per_tensor(chosen_scheme)
    if per_channel is None or per_channel == chosen_scheme.per_channel:
        return chosen_scheme
    if per_channel:
        return replace(chosen_scheme, per_channel=True, weights=DataType.INT8, symmetric_weights=True)
    return replace(chosen_scheme, per_channel=False)


def _float_reasons(network: Network, names: Collection[str]) -> dict[Layer, str]:
    """Return the layers that stay in float by request, with the reason."""
    expect_names(names, "float_layers")
    layers = [layer for layer in network.graph if not isinstance(layer.op, Constant | Input | Output)]
    known_names = {*(layer.name for layer in layers), *(layer.kind for layer in layers)}
    for name in names:
        if name not in known_names:
            raise InvalidArgumentError(
                f"float_layers has {name!r}, but no layer and no operator of the network has this name"
                f"{did_you_mean(name, known_names)}"
            )
    requested_names = set(names)
    return {layer: "left in float as requested" for layer in layers if {layer.name, layer.kind} & requested_names}
