"""Floating-point precision: a whole network in half precision, and single layers in float32 for backends without it.

Reduction to float16 or bfloat16 applies to the whole network. The network's inputs and outputs keep their types:
conversions are inserted after inputs, before outputs, and around layers that need float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.core.types import Array, DataType, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.regions import named_graphs
from interposer.ir.subgraph import SubgraphView
from interposer.ops import (
    Constant,
    ConvertBf16ToFp32,
    ConvertFp16ToFp32,
    ConvertFp32ToBf16,
    ConvertFp32ToFp16,
    Input,
    Output,
)
from interposer.optimizer.rewrites.conversions import INVERSES
from interposer.report.records import Message
from interposer.rewriting.driver import apply_rewrites
from interposer.rewriting.pattern import INSERTED

__all__ = ["convert_layer_to_fp32", "has_half_types", "in_fp32", "reduce_precision"]

FP32: Final = DataType.FLOAT32


class Half(NamedTuple):
    """The conversion operators for a half-precision type: `narrow` converts from float32 to it, `widen` back.

    `title` is the name of the type in the names of inserted layers, such as "fp16".
    """

    narrow: type[Op]
    widen: type[Op]
    title: str


_HALVES: Final = {
    DataType.FLOAT16: Half(ConvertFp32ToFp16, ConvertFp16ToFp32, "fp16"),
    DataType.BFLOAT16: Half(ConvertFp32ToBf16, ConvertBf16ToFp32, "bf16"),
}
_TO_FP32: Final[Mapping[DataType, DataType]] = dict.fromkeys(_HALVES, FP32)
_CONVERSIONS: Final = (ConvertFp32ToFp16, ConvertFp16ToFp32, ConvertFp32ToBf16, ConvertBf16ToFp32)


# --- a whole network in half precision --------------------------------------------------------------------------------


def reduce_precision(graph: Graph, dtype: DataType) -> list[Message]:
    """Compute in `dtype`, FLOAT16 or BFLOAT16, what the graph computes in float32; inputs and outputs keep their type.

    A layer stays in float32 if its operator requires it, if it has sequences or optionals as inputs or outputs, or if
    one of its constants would overflow to infinity; the messages report the last kind. Regions are reduced separately;
    their inputs and outputs keep their types too.

    Raises:
        InvalidArgumentError: another type.
    """
    if dtype not in _HALVES:
        raise InvalidArgumentError(f"precision can be reduced to float16 or bfloat16, not to {dtype}")
    return [message for _, subgraph in named_graphs(graph) for message in _reduce(subgraph, dtype)]


def _reduce(graph: Graph, dtype: DataType) -> list[Message]:
    reducer = _Reducer(graph, dtype)
    order = graph.topological()
    for layer in order:
        reducer.visit(layer)
    graph.erase_dead(layer for layer in order if isinstance(layer.op, Constant))
    apply_rewrites(graph, INVERSES)
    return reducer.messages


class _Reducer:
    """Changes the layers of one graph from float32 to a half-precision type, visiting them in running order.

    A value that layers need in both types is converted once. `messages` has warnings about layers that stay in float32.
    """

    def __init__(self, graph: Graph, dtype: DataType) -> None:
        self.graph, self.dtype = graph, dtype
        self.messages: list[Message] = []
        self._narrowed: dict[Value, Value] = {}
        self._widened: dict[Value, Value] = {}
        self._reduced_values: set[Value] = set()

    def visit(self, layer: Layer) -> None:
        """Change one layer to half precision, or convert its inputs to float32 if it must stay in float32."""
        if isinstance(layer.op, Input | Constant):
            return
        if not any(info.dtype is FP32 for info in (*_infos(layer), *layer.output_infos)) and not self._reads_reduced(
            layer
        ):
            return
        op = self._reduced_op(layer)
        for position, value in enumerate(layer.inputs):
            if value is not None:
                operand = self._in_float32(value, layer, position) if op is None else self._in_half(value)
                self.graph.set_input(layer, position, operand)
        if op is not None:
            _change_type(layer, op, {FP32: self.dtype})
            self._reduced_values |= {value for value in layer.outputs if value.known.dtype is self.dtype}

    def _reads_reduced(self, layer: Layer) -> bool:
        return any(value in self._reduced_values for value in layer.values)

    def _reduced_op(self, layer: Layer) -> Op | None:
        """Return the layer's operator for half precision; None if the layer must stay in float32.

        A message is added if the reason is a constant beyond the range of the half-precision type.
        """
        if isinstance(layer.op, Output) or not layer.op.executable or layer.regions or not _on_tensors(layer):
            return None
        reduced_op = _retyped(layer, {FP32: self.dtype})
        overflowing_constant = reduced_op and next((value for value in layer.values if self._overflows(value)), None)
        if overflowing_constant:
            text = (
                f"layer {layer} stays in float32: its constant {overflowing_constant.name!r} is beyond the range of "
                f"{self.dtype}"
            )
            self.messages.append(Message("warning", text))
        return None if overflowing_constant else reduced_op

    def _overflows(self, value: Value) -> bool:
        if not value.is_constant or value.known.dtype is not FP32 or value in self._narrowed:
            return False
        array = np.asarray(value.constant)
        return bool((np.isinf(_cast(array, self.dtype)) & np.isfinite(array)).any())

    def _in_half(self, value: Value) -> Value:
        if value.known.dtype is not FP32:
            return value
        if value not in self._narrowed:
            self._narrowed[value] = _convert(self.graph, value, self.dtype, value.index, value.producer.name)
        return self._narrowed[value]

    def _in_float32(self, value: Value, user: Layer, position: int) -> Value:
        if value not in self._reduced_values:
            return value
        if value not in self._widened:
            self._widened[value] = _convert(self.graph, value, FP32, position, user.name)
        return self._widened[value]


# --- one layer in float32 ---------------------------------------------------------------------------------------------


def has_half_types(layer: Layer) -> bool:
    """Return True if a layer has half-precision inputs or outputs and could compute in float32 instead."""
    halves = any(info.dtype in _HALVES for info in (*_infos(layer), *layer.output_infos))
    if not halves or layer.regions or isinstance(layer.op, _CONVERSIONS) or not _on_tensors(layer):
        return False
    return _retyped(layer, _TO_FP32) is not None


def in_fp32(layer: Layer) -> SubgraphView:
    """Return a view of a copy of the layer in float32, in a separate graph, to query backends about it.

    Raises:
        InvalidArgumentError: the layer cannot be in float32 (see `has_half_types`).
    """
    op = _op_in_fp32(layer)
    graph = Graph(layer.name)
    inputs = [None if value is None else _input_copy(graph, value) for value in layer.inputs]
    outputs = [_with_types(info, _TO_FP32) for info in layer.output_infos]
    copy = graph.add(op, inputs, name=layer.name, outputs=outputs, source=layer.source)
    infer_layer(copy)
    return SubgraphView(graph, [copy])


def _input_copy(graph: Graph, value: Value) -> Value:
    info = _with_types(value.known, _TO_FP32)
    if value.is_constant:
        return graph.constant(_cast(np.asarray(value.constant), info.dtype), like=info, name=value.name)
    source = graph.add(Input(len(graph)), name=value.name, outputs=[info])
    infer_layer(source)
    return source.output


def convert_layer_to_fp32(graph: Graph, layer: Layer) -> list[Layer]:
    """Change a layer from half precision to float32, and insert conversions before and after it.

    Returns the conversion layers, which still have to be assigned to a backend. Constants are converted immediately.

    Raises:
        InvalidArgumentError: the layer cannot be in float32 (see `has_half_types`).
    """
    op = _op_in_fp32(layer)
    input_conversions = _widen_inputs(graph, layer)
    types = [value.known.dtype for value in layer.outputs]
    _change_type(layer, op, _TO_FP32)
    outputs_and_types = zip(layer.outputs, types, strict=True)
    output_conversions = [
        _convert_uses(graph, value, dtype) for value, dtype in outputs_and_types if value.known.dtype is not dtype
    ]
    return [value.producer for value in (*input_conversions, *output_conversions) if not value.is_constant]


def _op_in_fp32(layer: Layer) -> Op:
    op = _retyped(layer, _TO_FP32)
    if op is None:
        raise InvalidArgumentError(f"layer {layer} cannot compute in float32")
    return op


def _widen_inputs(graph: Graph, layer: Layer) -> list[Value]:
    widened: dict[Value, Value] = {}
    for position, value in enumerate(layer.inputs):
        if value is None or value.known.dtype not in _HALVES:
            continue
        if value not in widened:
            widened[value] = _convert(graph, value, FP32, position, layer.name)
        graph.set_input(layer, position, widened[value])
    graph.erase_dead(value.producer for value in widened if value.is_constant)
    return list(widened.values())


def _convert_uses(graph: Graph, value: Value, dtype: DataType) -> Value:
    converted_value = _convert(graph, value, dtype, value.index, value.producer.name)
    graph.replace_uses(value, converted_value, lambda use: use.layer is not converted_value.producer)
    return converted_value


# --- what both need ---------------------------------------------------------------------------------------------------


def _infos(layer: Layer) -> tuple[TensorInfo, ...]:
    return tuple(value.known for value in layer.values)


def _on_tensors(layer: Layer) -> bool:
    """Return True if all inputs and outputs of a layer are tensors.

    Layers with sequences or optionals are not converted, because the elements of these keep their type.
    """
    return all(info.is_tensor for info in (*_infos(layer), *layer.output_infos))


def _with_types(info: TensorInfo, types: Mapping[DataType, DataType]) -> TensorInfo:
    return info.with_dtype(types[info.dtype]) if info.dtype in types else info


def _retyped(layer: Layer, types: Mapping[DataType, DataType]) -> Op | None:
    """Return the layer's operator for inputs of other types; None if it does not support them.

    `types` maps each data type to the one that replaces it, in the inputs and in attributes that are types.
    """
    attribute_values = layer.op.attribute_values()
    changes = {
        name: types[value] for name, value in attribute_values.items() if isinstance(value, DataType) and value in types
    }
    try:
        op = layer.op.replace(**changes) if changes else layer.op
    except InvalidArgumentError:
        return None
    infos = [None if value is None else _with_types(value.known, types) for value in layer.inputs]
    return None if op.violations(*infos) else op


def _change_type(layer: Layer, op: Op, types: Mapping[DataType, DataType]) -> None:
    """Set the operator of a layer whose inputs have changed type, and infer the infos of its outputs again.

    `types` maps each replaced data type to its replacement, for declared outputs that inference does not cover.
    """
    layer.op = op
    inferred_infos = op.infer_infos(*layer.input_infos)
    for value, info in zip(layer.outputs, inferred_infos, strict=True):
        if value.declared is not None and (info is None or info.dtype is not value.declared.dtype):
            value.declared = _with_types(value.declared, types)
    infer_layer(layer)


def _cast(array: Array, dtype: DataType) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        return array.astype(dtype.numpy)


def _convert(graph: Graph, value: Value, dtype: DataType, index: int, name: str) -> Value:
    """Return a value in the type `dtype`: a constant is converted immediately, anything else by a new layer.

    `index` and `name` go into the new layer's name: the number of the operand or result, and its layer's name.
    """
    info = value.known
    if value.is_constant:
        return graph.constant(_cast(np.asarray(value.constant), dtype), name=value.name)
    widening = dtype is FP32
    half = _HALVES[info.dtype if widening else dtype]
    title = f"convert_{half.title}_to_fp32" if widening else f"convert_fp32_to_{half.title}"
    op = half.widen() if widening else half.narrow()
    layer = graph.add(op, [value], name=f"{title}-{index}-{name}", source=INSERTED)
    infer_layer(layer)
    return layer.output
