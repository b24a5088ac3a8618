"""Which layers are quantized, and with which scales."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interposer.core.errors import UnknownRankError
from interposer.core.records import dataclass
from interposer.core.traits import ResultQuantization, Trait
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.kernels import refusals
from interposer.kernels.fixedpoint import dequantize
from interposer.ops.control import Constant, Input, Output
from interposer.ops.convolution import TransposeConvolution2d
from interposer.ops.elementwise import BinaryOperation, ElementwiseBinary
from interposer.quantization.bias_correction import mean_error
from interposer.quantization.rules import Rule, is_clamp, rule_of
from interposer.quantization.schemes import Scheme, quantization_of
from interposer.quantization.weights import Stored, quantized_bias, quantized_weights

__all__ = ["Decisions", "Means", "Ranges", "decide", "quantized_infos"]

Means = Mapping[Value, NDArray[np.float64]]
"""The mean of each channel of a value."""
Ranges = Mapping[Value, tuple[float, float]]
"""The range of each float32 value of a network: its smallest and its largest number."""
_HEADROOM: Final = 2.0**20
"""How much finer the steps of a sum may be than those of its operands."""


@dataclass
class Decisions:
    """How each layer of a float network is quantized.

    `rules` has the quantized layers, `reasons` has for each other layer why it stays in float. `quantizations` has the
    quantization of each value that a quantized layer reads or produces, and `stored` the weights and bias.
    """

    scheme: Scheme
    rules: dict[Layer, Rule] = field(default_factory=dict)
    reasons: dict[Layer, str] = field(default_factory=dict)
    quantizations: dict[Value, Quantization] = field(default_factory=dict)
    stored: dict[Layer, tuple[Stored, Stored | None]] = field(default_factory=dict)

    def operand(self, layer: Layer, index: int) -> Quantization:
        """Return the quantization that a quantized layer needs for its data operand `index`."""
        value = (
            layer.outputs[0]
            if self.rules[layer].result_quantization is ResultQuantization.SAME
            else layer.inputs[index]
        )
        assert value is not None, "operands of data are connected"
        return self.quantizations[value]


def decide(
    network: Network,
    scheme: Scheme,
    ranges: Ranges,
    float_reasons: Mapping[Layer, str],
    *,
    fuse_clamps: bool = True,
    means: Means | None = None,
) -> Decisions:
    """Decide which layers of a float network are quantized, and how.

    Args:
        network: a float network with all infos.
        scheme: the types of activations and weights.
        ranges: the range of each float32 value.
        float_reasons: layers that stay in float, with the reasons.
        fuse_clamps: let a layer before a RELU or a BOUNDED_RELU have the scale of its result, as fused layers have.
        means: the mean of each channel of the values that layers with weights read, to correct the bias.
    """
    reasons = dict(float_reasons)
    rules = _rules(network, scheme, reasons)
    for layer in list(rules):
        reason = _unbounded(layer, rules[layer], ranges)
        if reason is not None:
            reasons[layer] = reason
            del rules[layer]
    while True:
        _prune(rules, reasons)
        decisions = Decisions(scheme, dict(rules), reasons)
        _Scales(decisions, ranges, fuse_clamps, means or {}).assign()
        refused_layers = {layer: reason for layer in rules if (reason := _refusal(decisions, layer)) is not None}
        if not refused_layers:
            return decisions
        reasons.update(refused_layers)
        rules = {layer: rule for layer, rule in rules.items() if layer not in refused_layers}


def _rules(network: Network, scheme: Scheme, reasons: dict[Layer, str]) -> dict[Layer, Rule]:
    """Return the rules of the layers that have a form in integers; `reasons` gets the others."""
    return {layer: rule for layer in _computing(network) if isinstance(rule := _rule(layer, scheme, reasons), Rule)}


def _computing(network: Network) -> Iterator[Layer]:
    return (layer for layer in network.graph.topological() if not isinstance(layer.op, Input | Output | Constant))


def _rule(layer: Layer, scheme: Scheme, reasons: dict[Layer, str]) -> Rule | None:
    """Return the rule for a layer, or None if it stays in float; the reason is then in `reasons`."""
    if layer in reasons:
        return None
    try:
        rule = rule_of(layer, scheme.activations)
    except UnknownRankError:
        rule = "the ranks of its tensors are not known"
    if isinstance(rule, str):
        reasons[layer] = rule
        return None
    return rule


def _unbounded(layer: Layer, rule: Rule, ranges: Ranges) -> str | None:
    """Return why there is no scale for a value of a layer, or None: it was not observed, or is infinite or NaN."""
    operands = [
        layer.inputs[index] for index in (*rule.data_indices, rule.weights_index, rule.bias_index) if index is not None
    ]
    named_values = [("its result", value) for value in quantized_results(layer, rule)]
    named_values += [(f"its operand {value.name!r}", value) for value in operands if value is not None]
    for title, value in named_values:
        bounds = _range_of(value, ranges)
        if bounds is None:
            return f"no value of {title} was observed"
        if not np.isfinite(bounds).all():
            return f"{title} has values that are not finite"
    return None


def _range_of(value: Value, ranges: Ranges) -> tuple[float, float] | None:
    if value.constant is None:
        return ranges.get(value)
    return float(value.constant.min(initial=0)), float(value.constant.max(initial=0))


def _prune(rules: dict[Layer, Rule], reasons: dict[Layer, str]) -> None:
    """Remove passive layers whose data comes from float layers, or that no layer in integers is beside."""
    has_changed = True
    while has_changed:
        isolated = {layer: _isolation(layer, rules) for layer, rule in rules.items() if rule.passive}
        isolated_reasons = {layer: reason for layer, reason in isolated.items() if reason is not None}
        for layer, reason in isolated_reasons.items():
            del rules[layer]
            reasons[layer] = reason
        has_changed = bool(isolated_reasons)


def _isolation(layer: Layer, rules: Mapping[Layer, Rule]) -> str | None:
    """Return why a passive layer is better computed in float, or None."""
    data_values = [value for index in rules[layer].data_indices if (value := layer.inputs[index]) is not None]
    producers = [value.producer for value in data_values if not value.is_constant]
    if any(neighbour not in rules and not isinstance(neighbour.op, Input) for neighbour in producers):
        return "it moves float values"
    consumers = {use.layer for value in layer.outputs for use in value.uses}
    if any(neighbour in rules for neighbour in producers) or any(
        _reads(neighbour, layer, rules) for neighbour in consumers
    ):
        return None
    return "no layer beside it computes in integers"


def _reads(consumer: Layer, producer: Layer, rules: Mapping[Layer, Rule]) -> bool:
    rule = rules.get(consumer)
    return rule is not None and any(consumer.inputs[index] in producer.outputs for index in rule.data_indices)


# --- scales -----------------------------------------------------------------------------------------------------------


class _Scales:
    """Assigns scales: values that must have the same quantization form a group."""

    def __init__(self, decisions: Decisions, ranges: Ranges, fuse_clamps: bool, means: Means) -> None:
        self.decisions, self.ranges, self.fuse_clamps, self.means = decisions, ranges, fuse_clamps, means
        self.parents: dict[Value, Value] = {}
        self.inner: set[Value] = set()
        """Values whose own range does not count, as a single layer reads them and saturates or selects them."""

    def assign(self) -> None:
        """Set the quantizations, weights and bias of all quantized layers."""
        rules = self.decisions.rules
        for layer, rule in rules.items():
            self._unite(layer, rule)
        bounds = self._bounds()
        for layer, rule in rules.items():
            self._assign(layer, rule, bounds)

    def _unite(self, layer: Layer, rule: Rule) -> None:
        """Join the data of a layer and its results in one group if they must or should have the same scale."""
        source = layer.inputs[rule.data_indices[0]]
        is_fused = is_clamp(rule.op) and self.fuse_clamps and source is not None and self._is_private(source)
        if rule.result_quantization is not ResultQuantization.SAME and not is_fused:
            return
        for output in quantized_results(layer, rule)[1:]:
            self._join(output, layer.outputs[0])
        if len(rule.data_indices) == 1 and source is not None and not source.is_constant:
            self._join(source, layer.outputs[0])
            if len(source.uses) == 1 and (is_fused or not _averages(layer)):
                self.inner.add(source)
            return
        for index in rule.data_indices if not is_fused else ():
            value = layer.inputs[index]
            if value is not None and self._is_private(value):
                self._join(value, layer.outputs[0])
                self.inner.add(value)

    def _is_private(self, value: Value) -> bool:
        """Return True if only one layer reads a value, and its scale may be chosen for this layer."""
        root = self._root(value)
        is_fixed = any(self._is_prescribed(member) for member in (*self.parents, value) if self._root(member) is root)
        return not value.is_constant and len(value.uses) == 1 and not is_fixed

    def _is_prescribed(self, value: Value) -> bool:
        rule = self.decisions.rules.get(value.producer)
        return rule is not None and rule.result_quantization is ResultQuantization.PRESCRIBED

    def _root(self, value: Value) -> Value:
        while value in self.parents and self.parents[value] is not value:
            value = self.parents[value]
        return value

    def _join(self, value: Value, other_value: Value) -> None:
        first, second = self._root(value), self._root(other_value)
        self.parents.setdefault(first, first)
        self.parents.setdefault(second, second)
        if first is not second:
            self.parents[second] = first

    def _bounds(self) -> dict[Value, tuple[float, float]]:
        """Return the range of each group, by its root."""
        bounds_of_root: dict[Value, tuple[float, float]] = {}
        for value, (low, high) in self.ranges.items():
            if value not in self.inner:
                bounds_so_far = bounds_of_root.setdefault(self._root(value), (low, high))
                bounds_of_root[self._root(value)] = min(bounds_so_far[0], low), max(bounds_so_far[1], high)
        return bounds_of_root

    def _assign(self, layer: Layer, rule: Rule, bounds: Mapping[Value, tuple[float, float]]) -> None:
        quantizations, scheme = self.decisions.quantizations, self.decisions.scheme
        for index in rule.data_indices:
            value = layer.inputs[index]
            if value is not None and value not in quantizations:
                quantizations[value] = self._quantization(value, bounds)
        for value in quantized_results(layer, rule):
            quantizations[value] = self._quantization(value, bounds)
        if rule.result_quantization is ResultQuantization.PRESCRIBED:
            self._prescribe(layer, rule)
        if rule.weights_index is not None:
            scale = self.decisions.operand(layer, 0).scale
            self.decisions.stored[layer] = _constants(layer, rule, scheme, scale, self.means)

    def _quantization(self, value: Value, bounds: Mapping[Value, tuple[float, float]]) -> Quantization:
        scheme, quantizations = self.decisions.scheme, self.decisions.quantizations
        root = self._root(value)
        if root in quantizations:
            return quantizations[root]
        bounds_of_value = _range_of(value, bounds) if value.is_constant else bounds.get(root)
        low, high = bounds_of_value or (0.0, 0.0)
        return quantization_of(low, high, scheme.activations, scheme.symmetric)

    def _prescribe(self, layer: Layer, rule: Rule) -> None:
        """Set the quantization that the operator prescribes, for the result and all values of its group."""
        quantizations = self.decisions.quantizations
        inputs, _ = quantized_infos(self.decisions, layer)
        [output_info] = rule.op.infer_infos(*inputs)
        assert output_info is not None and output_info.quantization is not None, "the operator prescribes it"
        quantizations[self._root(layer.output)] = quantizations[layer.output] = output_info.quantization


def _averages(layer: Layer) -> bool:
    """Return True if a layer computes with its data, such as a mean of it, so that none of it may be saturated."""
    return not layer.op.traits & (Trait.MOVES | Trait.CHOOSES)


def _constants(layer: Layer, rule: Rule, scheme: Scheme, scale: float, means: Means) -> tuple[Stored, Stored | None]:
    """Return the quantized weights and bias of a layer whose input has this scale."""
    weights, bias = (
        None if index is None or (value := layer.inputs[index]) is None else value.constant
        for index in (rule.weights_index, rule.bias_index)
    )
    assert weights is not None, "the rule requires constant weights"
    if isinstance(rule.op, TransposeConvolution2d) and rule.op.groups > 1:  # one row of weights is of several channels
        scheme = replace(scheme, per_channel=False)
    stored = quantized_weights(weights, rule.axis, scheme, scale, bias)
    if bias is None:
        return stored, None
    error = mean_error(layer, rule, dequantize(stored.array, stored.quantization) - weights, means)
    corrected_bias = bias if error is None else bias.astype(np.float64) - error
    return stored, quantized_bias(corrected_bias, scheme, scale, stored.quantization)


# --- what is refused --------------------------------------------------------------------------------------------------


def _refusal(decisions: Decisions, layer: Layer) -> str | None:
    """Return why a layer cannot be quantized with the chosen scales, or None."""
    rule = decisions.rules[layer]
    inputs, outputs = quantized_infos(decisions, layer)
    if _overflows(rule, inputs, outputs):
        return "the steps of its result are much finer than those of its operands"
    errors = rule.op.violations(*inputs)
    if errors:
        return "; ".join(errors)
    return "; ".join(refusals(rule.op, inputs, outputs)) or None


def quantized_infos(decisions: Decisions, layer: Layer) -> tuple[list[TensorInfo | None], list[TensorInfo]]:
    """Return the infos of the operands and the results of a quantized layer."""
    rule, dtype = decisions.rules[layer], decisions.scheme.activations
    inputs: list[TensorInfo | None] = list(layer.input_infos)
    for index in rule.data_indices:
        info = inputs[index]
        inputs[index] = info and TensorInfo(info.shape, dtype, decisions.operand(layer, index))
    for operand_index, constant in zip(
        (rule.weights_index, rule.bias_index), decisions.stored.get(layer, ()), strict=False
    ):
        if operand_index is not None and constant is not None:
            inputs[operand_index] = TensorInfo.of(constant.array, constant.quantization)
    quantized_values = quantized_results(layer, rule)
    outputs = [
        TensorInfo(value.known.shape, dtype, decisions.quantizations[value])
        if value in quantized_values
        else value.known.with_constant(None)
        for value in layer.outputs
    ]
    return inputs, outputs


def quantized_results(layer: Layer, rule: Rule) -> list[Value]:
    """Return the results of a quantized layer that are quantized: not those of another type than the data."""
    if rule.result_quantization is ResultQuantization.NONE:
        return []
    return [value for value in layer.outputs if value.known.dtype is DataType.FLOAT32]


def _overflows(rule: Rule, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> bool:
    """Return True if sums or products, in steps of the result, do not fit 32 bits."""
    data_infos = [info for index in rule.data_indices if (info := inputs[index]) is not None]
    scales = [info.scale for info in data_infos]
    if rule.weights_index is not None:
        weights = inputs[rule.weights_index]
        assert weights is not None and weights.quantization is not None, "weights are quantized"
        factor = scales[0] * max(weights.quantization.scales) / outputs[0].scale
        return not _fits(int(weights.num_elements) * 2.0 ** (data_infos[0].dtype.bits + 8), factor)
    if not isinstance(rule.op, ElementwiseBinary):
        return False
    if rule.op.operation is BinaryOperation.MUL:
        return not _fits(4.0 ** data_infos[0].dtype.bits, scales[0] * scales[-1] / outputs[0].scale)
    headroom = _HEADROOM if data_infos[0].dtype is not DataType.INT16 else 2.0**15
    return 2 * max(scales) >= headroom * outputs[0].scale


def _fits(largest: float, factor: float) -> bool:
    """Return True if integers up to `largest` can be multiplied by `factor` without overflow of int32."""
    return factor < 1 or largest * factor < 2**30
