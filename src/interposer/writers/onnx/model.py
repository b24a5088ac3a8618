"""`write`: from a network, a graph or a part of one to a model; and `reasons`, what the format lacks for a layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from interposer._version import __version__
from interposer.errors import InvalidArgumentError, InvalidNetworkError, UnwritableError, expect
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_graph
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView
from interposer.ops.control import Constant, Input, Output
from interposer.types import TensorInfo
from interposer.writers.onnx.cleaning import clean
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.forms import has_type
from interposer.writers.onnx.layers import written
from interposer.writers.onnx.protos import Message, node_proto, onnx, tensor_proto, value_info
from interposer.writers.onnx.registry import RefusedError
from interposer.writers.onnx.sheet import Sheet
from interposer.writers.onnx.tensor import Tensor

__all__ = ["OLDEST_OPSET", "newest_opset", "reasons", "write"]

OLDEST_OPSET: Final = 13
_OLDEST_IR: Final = 7


class _Border(NamedTuple):
    """What is to be written: layers in running order, and what goes in and out under which names."""

    name: str
    layers: Sequence[Layer]
    inputs: Sequence[tuple[str, Value]]
    outputs: Sequence[tuple[str, Value]]


def write(
    network: Network | Graph | SubgraphView,
    *,
    opset: int | None = None,
    exact: bool = True,
    name: str | None = None,
    ir_version: int | None = None,
) -> Message:
    """The `onnx.ModelProto` that computes what a network, a graph or a part of one does.

    Inputs and outputs keep their order, types, names and named extents; nodes are named after layers. What is known of
    the quantization of inputs, outputs and constants is in the graph's `quantization_annotation`, which the front end
    reads. A part's inputs and outputs are named after the layers that give them.

    Args:
        network: what is written; it is validated, not changed.
        opset: the version of the operator set, 13 or later; None is the newest that the package onnx knows.
        exact: refuse quantized layers of which ONNX's arithmetic gives other integers. False writes them with real
            numbers between DequantizeLinear and QuantizeLinear, which engines know how to fuse; results may be a step
            off.
        name: the graph's name; by default the network's.
        ir_version: the version of the format; None is the oldest that has the opset.

    Raises:
        UnwritableError: with every layer that ONNX cannot express, and the reasons.
        InvalidNetworkError: the network has faults.
        InvalidArgumentError: a version that cannot be meant.
        MissingDependencyError: the package onnx is not installed.
    """
    border = _border(network)
    sheet = Sheet(_checked_opset(opset), exact=exact)
    refusals = dict(_written(border, sheet))
    if refusals:
        raise UnwritableError("ONNX", refusals, border.name)
    outputs = _named_outputs(border, sheet)
    graph = onnx().GraphProto(name=name or border.name or "network")
    _annotate(graph, border, sheet)
    clean(sheet, outputs, _annotated(graph))
    _fill(graph, border, sheet)
    return _model(graph, sheet.opset, ir_version)


def reasons(layer: Layer, *, opset: int | None = None, exact: bool = True) -> list[str]:
    """Why ONNX cannot express a layer; empty where it can. The infos of its inputs and outputs must be known.

    Arguments and errors are those of `write`; nothing is written.
    """
    sheet = Sheet(_checked_opset(opset), exact=exact)
    if any(value.info is None for value in (*layer.values, *layer.outputs)):
        return ["the shapes and types of its tensors are not known"]
    for value in layer.values:
        sheet.values[value] = _tensor(value, value.name)
    reason = _write_layer(layer, sheet, [value.name for value in layer.outputs])
    return [] if reason is None else [reason]


def newest_opset() -> int:
    """The newest version of the operator set that the package onnx knows."""
    return int(onnx().defs.onnx_opset_version())


def _checked_opset(opset: int | None) -> int:
    newest = newest_opset()
    if opset is None:
        return newest
    expect(opset, int, "the opset must be a number")
    if not OLDEST_OPSET <= opset <= newest:
        raise InvalidArgumentError(f"the opset is {opset}; opsets {OLDEST_OPSET} to {newest} can be written")
    return opset


# --- what is written --------------------------------------------------------------------------------------------------


def _border(network: Network | Graph | SubgraphView) -> _Border:
    if isinstance(network, SubgraphView):
        return _border_of_view(network)
    expect(network, Network | Graph, "a Network, a Graph or a SubgraphView can be written")
    if isinstance(network, Network):
        network.validate()
        graph = network.graph
    else:
        graph = network
        infer_graph(graph)
    if not graph.outputs:
        raise InvalidNetworkError(["it has no output layer"], graph.name)
    inputs = [(layer.name, layer.output) for layer in graph.inputs]
    outputs = [(layer.name, layer.values[0]) for layer in graph.outputs]
    return _Border(graph.name, graph.topological(), inputs, outputs)


def _border_of_view(view: SubgraphView) -> _Border:
    unknown = [value.name for value in (*view.operands, *view.outputs) if value.info is None]
    if unknown:
        raise InvalidNetworkError([f"the tensor {name} has no known info" for name in unknown], view.graph.name)
    constants = [value.producer for value in view.constants]
    outputs = list(view.outputs) or [value for layer in view for value in layer.outputs if not value.uses]
    return _Border(
        view.graph.name,
        [*constants, *view.layers],
        [(value.name, value) for value in view.inputs],
        [(value.name, value) for value in outputs],
    )


def _written(border: _Border, sheet: Sheet) -> Iterator[tuple[str, tuple[str, str]]]:
    """Write all layers; gives those that are refused by name, each with its operator and the reason."""
    names = {value: name for name, value in border.outputs}
    sheet.reserve([name for name, _ in (*border.inputs, *border.outputs)])
    for name, value in (*border.inputs, *border.outputs):
        if not value.known.is_ranked:
            yield name, (value.producer.kind, "its rank is not known, as that of a model's inputs and outputs must be")
    for name, value in border.inputs:
        sheet.values[value] = Tensor(name, value.known.dtype)
        if value.known.element is None and not has_type(value.known.dtype, sheet.opset):
            yield name, (value.producer.kind, f"opset {sheet.opset} has no type {value.known.dtype}")
    for layer in border.layers:
        if isinstance(layer.op, Constant):
            sheet.values[layer.output] = _tensor(layer.output, layer.name)
        elif not isinstance(layer.op, Input | Output):
            wanted = [names.get(value) or sheet.free_name(value.name) for value in layer.outputs]
            reason = _write_layer(layer, sheet, wanted)
            if reason is not None:
                yield layer.name, (layer.kind, reason)


def _tensor(value: Value, name: str) -> Tensor:
    """A value that comes from outside: its name, or its array where a constant layer gives it."""
    constant = value.producer.op.value if isinstance(value.producer.op, Constant) else None
    return Tensor(name, value.known.dtype, None if constant is None else np.asarray(constant))


def _write_layer(layer: Layer, sheet: Sheet, names: Sequence[str]) -> str | None:
    """Write a layer; returns why that cannot be done, or None."""
    draft = Draft(sheet, layer, [None if value is None else sheet.values[value] for value in layer.inputs])
    try:
        with np.errstate(all="ignore"):
            found = draft.finish(written(draft), names)
    except RefusedError as error:
        found = [Tensor(name, info.dtype) for name, info in zip(names, layer.output_infos, strict=True)]
        sheet.values.update(zip(layer.outputs, found, strict=True))
        return str(error)
    sheet.values.update(zip(layer.outputs, found, strict=True))
    return None


def _named_outputs(border: _Border, sheet: Sheet) -> list[str]:
    """The names of the outputs; what goes by another one is passed on under this one."""
    for name, value in border.outputs:
        tensor = sheet.values[value]
        if tensor.array is not None or tensor.name != name:
            draft = Draft(sheet, value.producer, ())
            draft.finish([draft.node("Identity", tensor)], [name])
    return [name for name, _ in border.outputs]


# --- the messages -----------------------------------------------------------------------------------------------------


def _annotate(graph: Message, border: _Border, sheet: Sheet) -> None:
    """Say which integers stand for real numbers: inputs, outputs, and constants that are taken as they are."""
    borders = [(name, value.known) for name, value in (*border.inputs, *border.outputs)]
    constants = [
        (sheet.placed[tensor], value.known) for value, tensor in sheet.values.items() if tensor in sheet.placed
    ]
    for name, info in dict([*constants, *borders]).items():
        if info.quantization is None:
            continue
        note = graph.quantization_annotation.add(tensor_name=name)
        for key, array in _parameters(info):
            note.quant_parameter_tensor_names.add(key=key, value=sheet.constant(array, f"{name}/{key.lower()}"))


def _annotated(graph: Message) -> list[str]:
    """What annotations name: tensors, scales and zero points."""
    notes = graph.quantization_annotation
    parameters = [entry.value for note in notes for entry in note.quant_parameter_tensor_names]
    return [note.tensor_name for note in notes] + parameters


def _parameters(info: TensorInfo) -> Iterable[tuple[str, np.ndarray]]:
    """Scale and zero point, shaped so that they broadcast with the tensor where there are several."""
    q = info.quantization
    assert q is not None
    shape = [] if q.axis is None else [len(q.scales) if axis == q.axis else 1 for axis in range(info.rank)]
    yield "SCALE_TENSOR", np.asarray(q.scales, np.float32).reshape(shape)
    yield "ZERO_POINT_TENSOR", np.asarray(q.zero_points).astype(info.dtype.numpy).reshape(shape)


def _fill(graph: Message, border: _Border, sheet: Sheet) -> None:
    graph.input.extend(value_info(name, value.known) for name, value in border.inputs)
    graph.output.extend(value_info(name, value.known) for name, value in border.outputs)
    graph.initializer.extend(tensor_proto(name, array) for name, array in sheet.constants.items())
    for step in sheet.steps:
        graph.node.append(node_proto(step.kind, step.name, step.inputs, step.outputs, step.attributes))
        graph.node[-1].doc_string = step.source
    inner = {name for step in sheet.steps for name in step.outputs} - {name for name, _ in border.outputs}
    for value, tensor in sheet.values.items():
        if tensor.array is None and tensor.name in inner and value.known.is_ranked:
            inner.discard(tensor.name)
            graph.value_info.append(value_info(tensor.name, value.known))


def _model(graph: Message, opset: int, ir_version: int | None) -> Message:
    package = onnx()
    imports = [package.helper.make_opsetid("", opset)]
    oldest = package.helper.find_min_ir_version_for(imports)
    if ir_version is not None and not _OLDEST_IR <= ir_version <= package.IR_VERSION:
        raise InvalidArgumentError(f"ir_version is {ir_version}; expected {_OLDEST_IR} to {package.IR_VERSION}")
    return package.ModelProto(
        ir_version=ir_version or oldest,
        opset_import=imports,
        producer_name="interposer",
        producer_version=__version__,
        graph=graph,
    )
