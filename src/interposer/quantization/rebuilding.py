"""Building the quantized network from a float network and the decisions about it."""

from __future__ import annotations

from interposer.core.types import Quantization, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input
from interposer.ops.quantization import Dequantize, Quantize
from interposer.quantization.decisions import Decisions, quantized_infos
from interposer.quantization.schemes import quantized_array

__all__ = ["rebuilt"]


def rebuilt(network: Network, decisions: Decisions, keep_types: bool, into: Network | None = None) -> Network:
    """Return a new network in which the chosen layers compute on quantized values.

    Layers keep their names. `Quantize` and `Dequantize` layers convert between quantized and float layers. With
    `keep_types`, inputs and outputs stay float32; otherwise they are quantized if a quantized layer reads or produces
    them. The layers are added to `into`, by default a new network.
    """
    return _Builder(network, decisions, keep_types, Network(network.name) if into is None else into).build()


class _Builder:
    """Adds the layers of a network to another one, quantized or not.

    `floats` and `integers` have, for each value of the old network, the new value in float and in integers.
    """

    def __init__(self, network: Network, decisions: Decisions, keep_types: bool, new_network: Network) -> None:
        self.old_network, self.decisions, self.keep_types = network, decisions, keep_types
        self.new_network = new_network
        self.floats: dict[Value, Value] = {}
        self.integers: dict[tuple[Value, Quantization], Value] = {}

    def build(self) -> Network:
        """Return the new network, without constants that no layer reads."""
        for layer in self.old_network.graph.topological():
            self._add(layer)
        unused_layers = [layer for layer in self.new_network.graph if isinstance(layer.op, Constant)]
        self.new_network.graph.erase_dead(unused_layers)
        return self.new_network

    def _add(self, layer: Layer) -> None:
        if layer in self.decisions.rules:
            self._add_quantized(layer)
        elif isinstance(layer.op, Input) and self._is_quantized_input(layer):
            self._add_quantized_input(layer)
        elif layer.kind == "Output" and self._is_quantized_output(layer):
            [value] = layer.values
            integers = self._integers(value, self.decisions.quantizations[value])
            self.new_network.add_layer(layer.op, integers, name=layer.name, source=layer.source)
        else:
            self._add_float(layer)

    def _add_float(self, layer: Layer) -> None:
        operands = [None if value is None else self._real(value) for value in layer.inputs]
        declared_infos = [] if layer.kind == "Output" else [_declared(value) for value in layer.outputs]
        copied_layer = self._copied(layer, operands, declared_infos)
        for old_value, new_value in zip(layer.outputs, copied_layer.outputs, strict=True):
            new_value.aliases = old_value.aliases
            self.floats[old_value] = new_value

    def _copied(self, layer: Layer, operands: list[Value | None], declared_infos: list[TensorInfo | None]) -> Layer:
        return self.new_network.add_layer(
            layer.op, *operands, name=layer.name, outputs=declared_infos, source=layer.source, regions=layer.regions
        )

    # --- quantized layers ---------------------------------------------------------------------------------------------

    def _add_quantized(self, layer: Layer) -> None:
        rule = self.decisions.rules[layer]
        operands = [
            None if value is None
            else self._integers(value, self.decisions.operand(layer, index)) if index in rule.data_indices
            else None if index in (rule.weights_index, rule.bias_index)
            else self._real(value)
            for index, value in enumerate(layer.inputs)
        ]  # fmt: skip
        for index, constant in zip(
            (rule.weights_index, rule.bias_index), self.decisions.stored.get(layer, ()), strict=False
        ):
            value = None if index is None else layer.inputs[index]
            if constant is not None and value is not None and index is not None:
                constant_layer = self.new_network.add_constant_layer(
                    constant.array, constant.quantization, name=value.name
                )
                operands[index] = constant_layer.output
        _, infos = quantized_infos(self.decisions, layer)
        quantized_layer = self.new_network.add_layer(
            rule.op, *operands, name=layer.name, outputs=infos, source=layer.source
        )
        for old_value, new_value in zip(layer.outputs, quantized_layer.outputs, strict=True):
            new_value.aliases = old_value.aliases
            if new_value.known.quantization is None:
                self.floats[old_value] = new_value
            else:
                self.integers[old_value, new_value.known.quantization] = new_value

    def _is_quantized_input(self, layer: Layer) -> bool:
        """Return True if an input shall be quantized: only layers in integers read it, and it is no state."""
        op, value = layer.op, layer.output
        if self.keep_types or not isinstance(op, Input) or op.state or value not in self.decisions.quantizations:
            return False
        return all(use.layer in self.decisions.rules for use in value.uses)

    def _add_quantized_input(self, layer: Layer) -> None:
        quantization = self.decisions.quantizations[layer.output]
        info = TensorInfo(layer.output.known.shape, self.decisions.scheme.activations, quantization)
        input_layer = self.new_network.add_layer(layer.op, name=layer.name, outputs=info, source=layer.source)
        self.integers[layer.output, quantization] = input_layer.output

    def _is_quantized_output(self, layer: Layer) -> bool:
        [value] = layer.values
        is_state: bool = layer.op.state  # type: ignore[attr-defined]
        is_integer = value.producer in self.decisions.rules and value in self.decisions.quantizations
        return not self.keep_types and not is_state and is_integer

    # --- values -------------------------------------------------------------------------------------------------------

    def _real(self, value: Value) -> Value:
        """Return a value of the old network in float; a `Dequantize` layer is added if it exists in integers only."""
        if value not in self.floats:
            integers = next(new_value for (old_value, _), new_value in self.integers.items() if old_value is value)
            self.floats[value] = self.new_network.add_layer(
                Dequantize(), integers, name=f"{value.name}:dequantized"
            ).output
        return self.floats[value]

    def _integers(self, value: Value, quantization: Quantization) -> Value:
        """Return a value of the old network as integers of a quantization; a layer is added if there are none."""
        if (value, quantization) not in self.integers:
            self.integers[value, quantization] = self._quantized(value, quantization)
        return self.integers[value, quantization]

    def _quantized(self, value: Value, quantization: Quantization) -> Value:
        dtype = self.decisions.scheme.activations
        if value.is_constant and value.constant is not None:
            array = quantized_array(value.constant, quantization, dtype)
            return self.new_network.add_constant_layer(array, quantization, name=value.name).output
        info = TensorInfo(value.known.shape, dtype, quantization)
        other_integers = next(
            (new_value for (old_value, _), new_value in self.integers.items() if old_value is value), None
        )
        source, suffix = (self._real(value), "quantized") if other_integers is None else (other_integers, "requantized")
        return self.new_network.add_layer(Quantize(dtype), source, name=f"{value.name}:{suffix}", outputs=info).output


def _declared(value: Value) -> TensorInfo | None:
    return None if value.info is None else value.known.with_constant(None)
