"""The functions `write`, which converts a network to a model, and `reasons`, which reports unsupported layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from interposer._version import __version__
from interposer.core.errors import ExecutionError, InvalidArgumentError, UnwritableError, as_int, memory_to
from interposer.core.families import import_families
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Graph, Layer
from interposer.ir.network import Network
from interposer.ir.subgraph import SubgraphView
from interposer.ops.quantization import BlockDequantize
from interposer.writers.borders import Border, border_of, border_of_layer
from interposer.writers.onnx.cleaning import clean
from interposer.writers.onnx.graphs import bind_inputs, fill, name_outputs, write_layers
from interposer.writers.onnx.legal import legalize
from interposer.writers.onnx.protos import Message, onnx
from interposer.writers.onnx.sheet import Sheet
from interposer.writers.onnx.tensor import Tensor

__all__ = ["OLDEST_OPSET", "newest_opset", "reasons", "write"]

OLDEST_OPSET: Final = 13
_USUAL_OPSETS: Final = (20, 23)
"""The opsets that engines support: 20 with GridSample, Gelu and float8; 23 with 4-bit types and attention."""
_BLOCKS_SINCE: Final = 21
"""The opset with scales for blocks. Engines compute with such weights, but not with the arithmetic of older opsets."""
_OLDEST_IR: Final = 7


@memory_to("write the network", ExecutionError)
def write(
    network: Network | Graph | SubgraphView,
    *,
    opset: int | None = None,
    exact: bool = True,
    name: str | None = None,
    ir_version: int | None = None,
    external: dict[str, Array] | None = None,
) -> Message:
    """Return an `onnx.ModelProto` that is equivalent to a network, a graph or a part of a graph.

    Inputs and outputs keep their order, types, names and named sizes; nodes are named after layers. The
    quantization of inputs, outputs and constants is in the graph's `quantization_annotation`, which the front end
    reads. The inputs and outputs of a part are named after the layers that produce them.

    Args:
        network: the network, graph or part of a graph; it is validated, not changed.
        opset: the version of the operator set, 13 or later. None is the first that can express the network among 20,
            23 (which engines support) and the newest that the package onnx knows; 20 is left out for weights with
            scales for blocks.
        exact: refuse quantized layers for which ONNX's arithmetic rounds differently. False writes them in float
            between DequantizeLinear and QuantizeLinear, which engines can fuse; results may be off by one
            quantization step.
        name: the graph's name; by default the network's.
        ir_version: the version of the format; None is the oldest that has the opset.
        external: a dict to which constants of 1 KiB or more are added by name. The model declares them as external
            data without containing them; they may share memory with the network's constants.

    Raises:
        UnwritableError: layers cannot be expressed in ONNX; the message lists them with the reasons.
        InvalidNetworkError: the network has errors.
        InvalidArgumentError: an opset or IR version is invalid.
        MissingDependencyError: the package onnx is not installed.
    """
    border = border_of(network, legalize)
    border.refuse_states("ONNX")
    sheet = _written(border, opset, exact=exact)
    outputs = name_outputs(border, sheet)
    model = _model(sheet.opset, ir_version)
    for domain in sorted(sheet.domains):
        model.opset_import.add(domain=domain, version=1)
    model.graph.name = name or border.name or "network"
    _annotate(model.graph, border, sheet)
    clean(sheet, outputs, _annotated(model.graph))
    fill(model.graph, border, sheet, external)
    return model


def reasons(layer: Layer, *, opset: int | None = None, exact: bool = True) -> list[str]:
    """Return the reasons why ONNX cannot express a layer; an empty list if it can.

    The infos of the layer's inputs and outputs must be known. Arguments and errors are those of `write`, but the
    default opset is the newest.
    """
    import_families(__package__)
    sheet = Sheet(_opsets(opset)[-1], exact=exact)
    if any(value.info is None for value in (*layer.values, *layer.outputs)):
        return ["the shapes and types of its tensors are not known"]
    border = border_of_layer(layer, legalize)
    for name, value in border.inputs:
        sheet.values[value] = Tensor(name, value.known.dtype)
    return [reason for _, (_, reason) in write_layers(border, sheet)][:1]


def newest_opset() -> int:
    """Return the newest version of the operator set that the package onnx knows."""
    return int(onnx().defs.onnx_opset_version())


def _opsets(opset: int | None, oldest: int = OLDEST_OPSET) -> list[int]:
    """Return the opsets to try, in order of preference: only `opset` if it is given.

    By default, these are the usual ones from `oldest` on, and then the newest. `InvalidArgumentError` is raised for an
    opset that cannot be written.
    """
    newest_version = newest_opset()
    if opset is None:
        return [*(candidate for candidate in _USUAL_OPSETS if oldest <= candidate < newest_version), newest_version]
    opset = as_int(opset, "the opset must be a number")
    if not OLDEST_OPSET <= opset <= newest_version:
        raise InvalidArgumentError(f"the opset is {opset}; opsets {OLDEST_OPSET} to {newest_version} can be written")
    return [opset]


def _written(border: Border, opset: int | None, *, exact: bool) -> Sheet:
    """Write all layers of `border` to a sheet, for the first opset that can express them, and return the sheet.

    `opset` is the only one to try, or None. `UnwritableError` is raised if no opset can express all layers. `exact` is
    as for `write`.
    """
    import_families(__package__)
    refusals = {}
    has_blocks = any(isinstance(layer.op, BlockDequantize) for layer in border.layers)
    for version in _opsets(opset, _BLOCKS_SINCE if has_blocks else OLDEST_OPSET):
        sheet = Sheet(version, exact=exact)
        refusals = dict([*bind_inputs(border, sheet), *write_layers(border, sheet)])
        if not refusals:
            return sheet
    raise UnwritableError("ONNX", refusals, border.name)


# --- the messages -----------------------------------------------------------------------------------------------------


def _annotate(graph: Message, border: Border, sheet: Sheet) -> None:
    """Add quantization annotations to a `GraphProto` for inputs, outputs, and constants that are not dequantized.

    Their scales and zero points become constants of the sheet.
    """
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
    """Return the names of the tensors in the graph's quantization annotations, with their scales and zero points."""
    notes = graph.quantization_annotation
    parameters = [parameter.value for note in notes for parameter in note.quant_parameter_tensor_names]
    return [note.tensor_name for note in notes] + parameters


def _parameters(info: TensorInfo) -> Iterable[tuple[str, np.ndarray]]:
    """Yield the parameters of a quantized tensor's annotation as pairs of a key (such as SCALE_TENSOR) and an array.

    Per-channel parameters are shaped so that they broadcast with the tensor.
    """
    q = info.quantization
    assert q is not None
    shape = [] if q.axis is None else [len(q.scales) if axis == q.axis else 1 for axis in range(info.rank)]
    scales = np.asarray(q.scales, np.float32)
    yield "SCALE_TENSOR", (scales if scales.tolist() == list(q.scales) else np.asarray(q.scales)).reshape(shape)
    yield "ZERO_POINT_TENSOR", np.asarray(q.zero_points).astype(info.dtype.numpy).reshape(shape)


def _oldest_ir_of(imports: list[Message]) -> int:
    """Return the oldest version of the format that has these opsets; the newest one if the package does not say it."""
    package = onnx()
    try:
        version: int = package.helper.find_min_ir_version_for(imports)
    except ValueError:  # onnx 1.22 has opset 27, but not in this list
        return int(package.IR_VERSION)
    return version


def _model(opset: int, ir_version: int | None) -> Message:
    """Return a `ModelProto` without a graph, which is filled in place: protobuf would copy a finished one."""
    package = onnx()
    imports = [package.helper.make_opsetid("", opset)]
    if ir_version is not None and not _OLDEST_IR <= ir_version <= package.IR_VERSION:
        raise InvalidArgumentError(f"ir_version is {ir_version}; expected {_OLDEST_IR} to {package.IR_VERSION}")
    producer_fields = {"producer_name": "interposer", "producer_version": __version__}
    return package.ModelProto(ir_version=ir_version or _oldest_ir_of(imports), opset_import=imports, **producer_fields)
