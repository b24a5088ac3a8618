"""The conversion of layers with slots to layers of a graph, in the order in which they depend on each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from interposer import Quantization, TensorInfo
from interposer.core.errors import InterposerError, ParseError
from interposer.core.types import UNRANKED, Array
from interposer.frontends.armnn.armnn_converters import find
from interposer.frontends.armnn.contents import Layer, Slot
from interposer.frontends.armnn.node import FileImporter, Node
from interposer.ir.graph import Graph, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ops.control import Input, Output
from pyarmnn import _types as types
from pyarmnn._infos import info_to_core
from pyarmnn._messages import unsupported
from pyarmnn._network import slots
from pyarmnn._network.slots import IConnectableLayer, IOutputSlot
from pyarmnn._shapes import TensorInfo as AnnInfo
from pyarmnn._translate.records import Fields, record_of
from pyarmnn._translate.shapes import check_fill, check_views, mismatch, transpose_convolution_shape

__all__ = ["Builder"]

_RESULT_TYPES: Final = {
    "ArgMinMax": types.DataType_Signed32,
    "Comparison": types.DataType_Boolean,
    "Dequantize": types.DataType_Float32,
    "Rank": types.DataType_Signed32,
}
"""The types of the results of layers that do not have the type of their first input."""

_CHECKS: Final = {"Concat": check_views, "Fill": check_fill}
"""What is checked before layers of a kind are converted."""


class Builder(FileImporter):
    """Converts the layers of a network to a graph, or adds them to the graph of a network that was parsed.

    It is the importer of Interposer's converters of Arm NN's layers.
    """

    weights_layout = 0

    def __init__(self, backends: Sequence[str], graph: Graph | None = None) -> None:
        super().__init__(Network("network") if graph is None else Network(graph=graph))
        self._backends = backends
        self._values: dict[IOutputSlot, Value] = {}
        self._layers: dict[int, IConnectableLayer] = {}

    def build(self, layers: Iterable[IConnectableLayer]) -> None:
        """Add all layers to the graph.

        Raises:
            RuntimeError: an input is not connected, a shape differs from the inferred one, a scale is absent, or no
                backend supports a layer.
        """
        ordered = _ordered(list(layers))
        _check_scales(ordered)
        for layer in ordered:
            self._layers[layer.GetGuid()] = layer
            self._add_connectable(layer)

    def _add_connectable(self, layer: IConnectableLayer) -> None:
        if layer._type == "Input":
            [slot] = layer._outputs
            info = info_to_core(slot._info)
            port = self.network.graph.add(Input(layer._descriptor), name=_name(layer), outputs=[info])
            infer_layer(port)
            self._values[slot] = port.output
        elif layer._type == "Output":
            self.network.graph.add(Output(layer._descriptor), [self._source(layer, 0)], name=_name(layer))
        else:
            self._convert(layer)

    def _convert(self, layer: IConnectableLayer) -> None:
        _CHECKS.get(layer._type, _nothing)(layer)
        convert = find(layer._type)
        assert convert is not None
        self.weights_layout = int(len(layer._inputs) > 1)  # depthwise weights that are inputs are [1, H, W, I * M]
        node = Node(self, self._record(layer), _name(layer), "", [_expected(slot) for slot in layer._outputs])
        try:
            values = convert(node)
        except ParseError as error:
            raise RuntimeError(unsupported(layer, self._backends, error.message)) from error
        except (InterposerError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise RuntimeError(unsupported(layer, self._backends, str(error))) from error
        for slot, value in zip(layer._outputs, values, strict=True):
            _check_shape(slot, value)
            self._values[slot] = value

    def _record(self, layer: IConnectableLayer) -> Layer:
        sources = {slot._index: slot._source for slot in layer._inputs if slot._source is not None}
        inputs = {index: Slot(source.GetOwningLayerGuid(), source._index) for index, source in sources.items()}
        outputs: Any = tuple(Fields() for _ in layer._outputs)
        guid = layer.GetGuid()
        return Layer(layer._type, guid, guid, layer.GetName(), inputs, outputs, 0, record_of(layer))

    # --- what converters use ------------------------------------------------------------------------------------------

    def input(self, layer: Layer, number: int) -> Value | None:
        """Return what an input of a layer reads, or None if it is not connected."""
        slot = layer.inputs.get(number)
        return None if slot is None else self._values[self._layers[slot.layer]._outputs[slot.output]]

    def is_read(self, layer: Layer, slot: int) -> bool:
        """Return whether another layer reads an output of a layer."""
        return bool(self._layers[layer.index]._outputs[slot]._targets)

    def stored(self, record: Any, name: str, source: str, where: str, *, scaled: bool) -> Value:
        """Add a constant of a layer to the graph, and return its value."""
        constant: slots.Constant = record
        info, quantization = constant.info, info_to_core(constant.info).quantization
        if scaled and info.GetDataType() == types.DataType_Signed32 and info.GetQuantizationScale() > 0:
            quantization = Quantization(info.GetQuantizationScale(), info.GetQuantizationOffset())
        return self.constant(constant.array, name, source, quantization)

    def raw(self, record: Any, where: str) -> tuple[Array, Quantization | None]:
        """Return the elements of a constant of a layer and its scales, which may belong to no axis of it."""
        constant: slots.Constant = record
        return constant.array, info_to_core(constant.info).quantization

    def _source(self, layer: IConnectableLayer, number: int) -> Value:
        source = layer._inputs[number]._source
        assert source is not None
        return self._values[source]


def _nothing(layer: IConnectableLayer) -> None:
    """Check nothing."""


def _name(layer: IConnectableLayer) -> str:
    return layer.GetName() or layer._type


def _ordered(layers: list[IConnectableLayer]) -> list[IConnectableLayer]:
    """Return the layers so that each follows those that it reads."""
    for layer in layers:
        if any(slot._source is None for slot in layer._inputs):
            raise RuntimeError(f'Input not connected on {layer._type} layer "{layer.GetName()}"')
    reads = {layer: [slot._source._layer for slot in layer._inputs if slot._source is not None] for layer in layers}
    for layer, sources in reads.items():
        if any(source not in reads for source in sources):
            raise RuntimeError(f'{layer._type} layer "{layer.GetName()}" reads a layer of another network')
    try:
        return list(TopologicalSorter(reads).static_order())
    except CycleError as error:
        names = ", ".join(repr(_name(layer)) for layer in error.args[1])
        raise RuntimeError(f"The network has a cycle, and cannot be ordered: {names}") from None


def _check_scales(layers: Iterable[IConnectableLayer]) -> None:
    """Raise RuntimeError if the info of an output of 8 bits has no scale; lists all of them."""
    problems = [
        f"ERROR: output {slot._index} of layer {layer._type} ({layer.GetName()}) is of type Quantized 8 bit but its "
        "scale parameter has not been set"
        for layer in layers
        for slot in layer._outputs
        if slot._info.GetDataType() == types.DataType_QAsymmU8 and slot._info.GetQuantizationScale() == 0
    ]
    if problems:
        raise RuntimeError("".join(problems))


def _expected(slot: IOutputSlot) -> TensorInfo:
    """Return the info that a converter gets for an output: its shape is left to be inferred where that is possible."""
    layer, info = slot._layer, info_to_core(_declared(slot))
    if layer._type == "Softmax" and slot._info.GetDataType() == types.DataType_QAsymmU8:
        info = TensorInfo(info.shape, info.dtype, Quantization(1 / 256, 0))
    if layer._type == "TransposeConvolution2d":
        return TensorInfo(transpose_convolution_shape(layer), info.dtype, info.quantization)
    return info if layer._type in ("Fill", "StandIn") else TensorInfo(UNRANKED, info.dtype, info.quantization)


def _declared(slot: IOutputSlot) -> AnnInfo:
    """Return the info of an output. The type of an output that has none is guessed, so that its shape is what fails."""
    layer, info = slot._layer, slot._info
    source = layer._inputs[0]._source if layer._inputs else None
    if info.GetNumDimensions() or source is None:
        return info
    guess = AnnInfo(source._info)
    guess.SetDataType(_RESULT_TYPES.get(layer._type, guess.GetDataType()))
    return guess


def _check_shape(slot: IOutputSlot, value: Value) -> None:
    """Raise RuntimeError if the shape of an output is not the inferred one; a scalar has the shape [1]."""
    sources = (read._source for read in slot._layer._inputs)
    is_scalar = any(source is not None and source._info.GetNumDimensions() for source in sources)
    declared, inferred = list(slot._info.GetShape()), list(value.known.shape) or ([1] if is_scalar else [])
    if declared != inferred:
        raise mismatch(slot._layer._type, _listed(declared), _listed(inferred))


def _listed(sizes: Sequence[object]) -> str:
    return f"[{','.join(map(str, sizes))}]"
