"""Networks whose weights are stored in fewer bits, while activations stay in float or are quantized in every run.

- "float16" and "bfloat16": constants are stored in 16 bits, and computed with in float32
- "weights-int8": weights of 8 bits with a scale for each output channel, which are dequantized
- "weights-int4": weights of matrix products with 4 bits and a scale for each block, those of convolutions with 8 bits
- "dynamic": weights of 8 bits; in every run, activations are quantized to uint8, and products are summed in integers
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

import numpy as np

from interposer.core.errors import UnknownRankError
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.ops import (
    Addition,
    BatchMatMul,
    BlockDequantize,
    Cast,
    Constant,
    Convolution2d,
    Dequantize,
    DynamicQuantize,
    FullyConnected,
    Input,
    IntegerConvolution2d,
    IntegerMatMul,
    Multiplication,
    Output,
)
from interposer.quantization.rules import Rule, rule_of
from interposer.quantization.schemes import SCHEMES, quantized_array

__all__ = ["Stores", "stored_network"]

_LEAST: Final = 1024
"""The least number of weights that are stored in fewer bits."""


@dataclass
class Stores:
    """Which layers got weights of fewer bits, with the quantization of the weights, and why the others did not.

    The quantization is None for weights with a scale for each block, and for floats of 16 bits.
    """

    layers: dict[Layer, Quantization | None] = field(default_factory=dict)
    errors: dict[Layer, tuple[Array, Array]] = field(default_factory=dict)
    reasons: dict[Layer, str] = field(default_factory=dict)


def stored_network(
    network: Network, scheme: str, block_size: int, float_reasons: dict[Layer, str], into: Network
) -> Stores:
    """Add the layers of a float network to `into`, with weights stored as a scheme of `STORAGE` says.

    Args:
        network: a float network with all infos.
        scheme: the name of the scheme.
        block_size: the number of weights along the depth of a product that share a scale, for "weights-int4".
        float_reasons: layers whose weights stay in float32, with the reasons.
        into: an empty network.
    """
    writer = _Writer(network, scheme, block_size, into)
    writer.stores.reasons.update(float_reasons)
    for layer in network.graph.topological():
        writer.add(layer)
    into.graph.erase_dead([layer for layer in into.graph if isinstance(layer.op, Constant | Dequantize | Cast)])
    return writer.stores


class _Writer:
    def __init__(self, network: Network, scheme: str, block_size: int, new_network: Network) -> None:
        self.network, self.scheme, self.block_size, self.new_network = network, scheme, block_size, new_network
        self.stores = Stores()
        self.values: dict[Value, Value] = {}

    def add(self, layer: Layer) -> None:
        """Add a layer of the float network."""
        if isinstance(layer.op, Constant | Input | Output) or layer in self.stores.reasons:
            self._copy(layer, self._operands(layer))
        elif self.scheme in ("float16", "bfloat16"):
            self._with_narrow_constants(layer, DataType.of(self.scheme))
        else:
            self._weighted(layer)

    def _operands(self, layer: Layer) -> list[Value | None]:
        return [None if value is None else self.values[value] for value in layer.inputs]

    def _copy(self, layer: Layer, operands: list[Value | None]) -> None:
        declared_infos = [] if isinstance(layer.op, Output) else [_declared(value) for value in layer.outputs]
        copied_layer = self.new_network.add_layer(
            layer.op, *operands, name=layer.name, outputs=declared_infos, source=layer.source, regions=layer.regions
        )
        for old_value, new_value in zip(layer.outputs, copied_layer.outputs, strict=True):
            new_value.aliases = old_value.aliases
            self.values[old_value] = new_value

    # --- floats of 16 bits --------------------------------------------------------------------------------------------

    def _with_narrow_constants(self, layer: Layer, dtype: DataType) -> None:
        operands, has_narrow_constants = self._operands(layer), False
        for index, value in enumerate(layer.inputs):
            if value is not None and value.is_constant and value.known.dtype is DataType.FLOAT32:
                narrow = self._narrow(value, dtype, layer)
                operands[index] = narrow or operands[index]
                has_narrow_constants = has_narrow_constants or narrow is not None
        if has_narrow_constants:
            self.stores.layers[layer] = None
        else:
            self.stores.reasons.setdefault(layer, "it has no constants of float32")
        self._copy(layer, operands)

    def _narrow(self, value: Value, dtype: DataType, layer: Layer) -> Value | None:
        constant = np.asarray(value.constant)
        with np.errstate(all="ignore"):
            array = constant.astype(dtype.numpy)
        restored_array = array.astype(np.float32)
        if not np.array_equal(np.isfinite(restored_array), np.isfinite(constant)):
            self.stores.reasons[layer] = f"its constants are out of the range of {dtype}"
            return None
        stored_constant = self.new_network.add_constant_layer(array, name=value.name)
        self.stores.errors[layer] = (restored_array, constant)
        return self.new_network.add_layer(
            Cast(DataType.FLOAT32), stored_constant, name=f"{value.name}:{DataType.FLOAT32}"
        ).output

    # --- integers -----------------------------------------------------------------------------------------------------

    def _weighted(self, layer: Layer) -> None:
        rule = _weights_rule(layer)
        if self.scheme == "dynamic" and isinstance(rule, Rule):
            rule = _not_dynamic(layer, rule) or rule
        if isinstance(rule, str):
            self.stores.reasons[layer] = rule
            self._copy(layer, self._operands(layer))
            return
        weights_value = layer.inputs[1]
        assert weights_value is not None, "the rule requires weights"
        weights = np.asarray(weights_value.constant)
        if self.scheme == "dynamic":
            self._dynamic(layer, rule, weights)
            return
        uses_four_bits = self.scheme == "weights-int4" and isinstance(rule.op, FullyConnected)
        operands = self._operands(layer)
        operands[1] = self._blocks(layer, rule, weights) if uses_four_bits else self._channels(layer, rule, weights)
        self._copy(layer, operands)

    def _channels(self, layer: Layer, rule: Rule, weights: Array) -> Value:
        array, quantization = _by_channel(weights, rule.axis)
        self._note(layer, quantization, array, weights)
        constant = self.new_network.add_constant_layer(array, quantization, name=layer.values[1].name)
        return self.new_network.add_layer(Dequantize(), constant, name=f"{layer.values[1].name}:dequantized").output

    def _blocks(self, layer: Layer, rule: Rule, weights: Array) -> Value:
        depth, name = 1 - rule.axis, layer.values[1].name
        array, scales, restored_weights = _by_block(weights, depth, self.block_size)
        self.stores.layers[layer] = None
        self.stores.errors[layer] = (restored_weights, weights)
        operands = [
            self.new_network.add_constant_layer(array, name=name),
            self.new_network.add_constant_layer(scales, name=f"{name}:scales"),
        ]  # fmt: skip
        op = BlockDequantize(block_size=self.block_size, axis=depth)
        return self.new_network.add_layer(op, *operands, name=f"{name}:dequantized").output

    def _note(self, layer: Layer, quantization: Quantization, array: Array, weights: Array) -> None:
        shape = [-1 if axis == quantization.axis else 1 for axis in range(weights.ndim)]
        self.stores.layers[layer] = quantization
        self.stores.errors[layer] = (array * np.reshape(quantization.scales, shape), weights)

    def _dynamic(self, layer: Layer, rule: Rule, weights: Array) -> None:
        """Add a product of integers whose activations are quantized in every run, as ONNX defines it."""
        array, quantization = _by_channel(weights, rule.axis)
        self._note(layer, quantization, array, weights)
        x, name = self.values[layer.values[0]], layer.name
        quantized_x, scale, zero_point = self.new_network.add_layer(
            DynamicQuantize(), x, name=f"{name}:quantized"
        ).outputs
        sums, shape = self._sums(layer, rule, array, quantized_x, zero_point)
        float_sums = self.new_network.add_layer(Cast(DataType.FLOAT32), sums, name=f"{name}:sums")
        scales = np.asarray(quantization.scales, np.float32).reshape(shape)
        factor = self.new_network.add_layer(
            Multiplication(), scale, self.new_network.add_constant_layer(scales), name=f"{name}:scale"
        )
        bias = layer.inputs[2] if len(layer.inputs) > 2 else None
        product = self.new_network.add_layer(
            Multiplication(), float_sums, factor, name=name if bias is None else f"{name}:product"
        )
        if bias is not None and bias.constant is not None:
            constant = self.new_network.add_constant_layer(bias.constant.reshape(shape), name=bias.name)
            product = self.new_network.add_layer(Addition(), product, constant, name=name)
        product.output.aliases = layer.output.aliases
        self.values[layer.output] = product.output

    def _sums(
        self, layer: Layer, rule: Rule, array: Array, integers: Value, zero_point: Value
    ) -> tuple[Layer, list[int]]:
        """Add the layer that sums products of integers; return it, and the shape of one number for each channel."""
        op, shape = rule.op, [-1]
        product: Op = IntegerMatMul()
        if isinstance(op, Convolution2d):
            product = IntegerConvolution2d(**{key: getattr(op, key) for key in IntegerConvolution2d.attributes})
            shape = [-1 if axis == op.data_layout.axes().channels else 1 for axis in range(4)]
        elif rule.axis == 0:
            array = np.ascontiguousarray(array.T)
        weights = self.new_network.add_constant_layer(array, name=layer.values[1].name)
        return self.new_network.add_layer(product, integers, weights, zero_point, name=f"{layer.name}:integers"), shape


def _declared(value: Value) -> TensorInfo | None:
    return None if value.info is None else value.known.with_constant(None)


def _weights_rule(layer: Layer) -> Rule | str:
    """Return the rule of a layer whose weights can be stored in fewer bits, or the reason why they stay in float32."""
    try:
        rule = rule_of(layer, DataType.INT8)
    except UnknownRankError:
        return "the ranks of its tensors are not known"
    if isinstance(rule, str):
        return rule if "weights" in rule else "it has no weights that are constant"
    if rule.weights_index is None:
        return "it has no weights that are constant"
    weights = layer.inputs[rule.weights_index]
    assert weights is not None and weights.constant is not None, "the rule requires constant weights"
    if weights.constant.size < _LEAST:
        return f"it has fewer than {_LEAST} weights"
    return rule if np.isfinite(weights.constant).all() else "its weights are not finite"


def _not_dynamic(layer: Layer, rule: Rule) -> str | None:
    """Return why a layer cannot quantize its activations in every run, or None."""
    rank = layer.values[0].known.rank
    if isinstance(rule.op, Convolution2d):
        return None
    if not isinstance(rule.op, FullyConnected):
        return f"{layer.kind} has no form with activations that are quantized in every run"
    takes_matrices = rule.op.keep_dims or rank == 2 or isinstance(layer.op, BatchMatMul)
    return None if takes_matrices else "its input is not a matrix"


def _by_channel(weights: Array, axis: int) -> tuple[Array, Quantization]:
    """Return int8 weights with a scale for each index along `axis`."""
    other_axes = tuple(other_axis for other_axis in range(weights.ndim) if other_axis != axis)
    bounds = np.abs(weights.astype(np.float64)).max(axis=other_axes, initial=0)
    scales = np.where(bounds > 0, bounds, 1) / 127
    quantization = Quantization(
        np.maximum(scales, np.finfo(np.float32).tiny).astype(np.float32).astype(float).tolist(), 0, axis
    )
    return quantized_array(weights, quantization, SCHEMES["int8"].weights), quantization


def _by_block(weights: Array, depth: int, size: int) -> tuple[Array, Array, Array]:
    """Return int4 weights with a scale for each block along `depth`: integers, scales, and the dequantized weights."""
    columns = np.moveaxis(weights.astype(np.float64), depth, 0)
    count = -(-columns.shape[0] // size)
    padded = np.zeros((count * size, columns.shape[1]))
    padded[: columns.shape[0]] = columns
    blocks = padded.reshape(count, size, -1)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)[:, 0]
    scales = np.where(largest == 0, 1, -largest / 8).astype(np.float32)
    integers = np.clip(np.rint(blocks / scales[:, None]), -8, 7)
    restored_blocks = (integers * scales[:, None]).reshape(-1, columns.shape[1])[: columns.shape[0]]
    integer_columns = integers.reshape(-1, columns.shape[1])[: columns.shape[0]]
    int4_weights = (
        np.ascontiguousarray(np.moveaxis(integer_columns, 0, depth)).astype(np.int8).astype(DataType.INT4.numpy)
    )
    return int4_weights, np.ascontiguousarray(np.moveaxis(scales, 0, depth)), np.moveaxis(restored_blocks, 0, depth)
