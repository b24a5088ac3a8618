"""Shape inference over a graph: every layer's operator is asked for the infos of its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interposer.errors import InvalidArgumentError, InvalidNetworkError
from interposer.ir.graph import Graph, Layer, Value
from interposer.types import Dim, TensorInfo, TensorShape

__all__ = ["infer_graph", "infer_layer", "infos_for", "layer_faults", "shaped_by_data"]


def infer_layer(layer: Layer) -> list[str]:
    """Set the infos of a layer's outputs from those of its inputs; returns the faults, none where all is well.

    Where there are faults, or an input is not known, the outputs are left unknown.
    """
    faults = layer_faults(layer)
    if faults or any(value.info is None for value in layer.values):
        _forget(layer.outputs)
        return faults
    try:
        inferred = layer.op.infer_infos(*layer.input_infos)
    except InvalidArgumentError as error:
        _forget(layer.outputs)
        return [str(error)]
    for value, info in zip(layer.outputs, inferred, strict=True):
        merged = _merged(info, value.declared, _title(value))
        faults += [merged] if isinstance(merged, str) else []
        value.info = None if isinstance(merged, str) else merged
    return faults


def layer_faults(layer: Layer) -> list[str]:
    """What is wrong with a layer's inputs; faults that only follow from an unknown input are left out."""
    infos = layer.input_infos
    if any(value.info is None for value in layer.values):
        missing = [o.name for o, value in zip(layer.op.operands, layer.op.arguments(layer.inputs), strict=True)
                   if value is None and not o.optional]  # fmt: skip
        return [f"{name} is not connected" for name in missing]
    return layer.op.violations(*infos)


def infos_for(layer: Layer, inputs: Sequence[TensorInfo | None]) -> list[TensorInfo]:
    """The infos of a layer's outputs where its inputs turn out to be these; what is known of the outputs holds on.

    Raises:
        InvalidArgumentError: the operator cannot be run on such inputs, or gives something else than is known.
    """
    faults = layer.op.violations(*inputs)
    if faults:
        raise InvalidArgumentError("; ".join(faults))
    found = []
    for value, info in zip(layer.outputs, layer.op.infer_infos(*inputs), strict=True):
        merged = _merged(info, value.known, _title(value))
        if isinstance(merged, str):
            raise InvalidArgumentError(merged)
        found.append(merged)
    return found


def shaped_by_data(graph: Graph) -> set[Value]:
    """The values whose shape is only known while running, however much is known of the inputs' shapes.

    These are results that are declared dynamic, as far as inference could not tell their shape, and what follows.
    """
    found: set[Value] = set()
    for layer in graph.topological():
        follows = not found.isdisjoint(layer.values)
        for value in layer.outputs:
            if value.info is not None and not value.info.is_concrete and (follows or _is_dynamic(value)):
                found.add(value)
    return found


def _is_dynamic(value: Value) -> bool:
    declared = value.producer.op.results
    return declared[min(value.index, len(declared) - 1)].dynamic


def _forget(values: Iterable[Value]) -> None:
    for value in values:
        value.info = None


def _title(value: Value) -> str:
    return "its output" if len(value.producer.outputs) == 1 else f"its output {value.index}"


def _merged(inferred: TensorInfo | None, declared: TensorInfo | None, title: str) -> TensorInfo | str:
    if inferred is None:
        hint = "has no tensor info and none can be inferred; declare it with outputs=[TensorInfo(...)]"
        return declared or f"{title} {hint}"
    if declared is None:
        return inferred
    if declared.dtype is not inferred.dtype:
        return f"{title} is declared as {declared.dtype}, but it gives {inferred.dtype}"
    if not declared.shape.accepts(inferred.shape):
        return f"{title} is declared with shape {declared.shape}, but it gives {inferred.shape}"
    both = zip(inferred.shape, declared.shape, strict=True)
    shape = TensorShape(d if isinstance(i, Dim) else i for i, d in both)
    try:
        return TensorInfo(shape, inferred.dtype, declared.quantization, inferred.constant)
    except InvalidArgumentError as error:
        return f"{title} cannot be as it is declared: {error}"


def infer_graph(graph: Graph) -> None:
    """Infer the infos of all values.

    Raises:
        InvalidNetworkError: with every fault of every layer.
    """
    faults = [f"layer {layer}: {fault}" for layer in graph.topological() for fault in infer_layer(layer)]
    if faults:
        raise InvalidNetworkError(faults, graph.name)
