"""The optimizer's options for declared shapes: to infer none, and to accept additional dimensions of 1."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.core.errors import InvalidArgumentError, InvalidNetworkError
from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.network import Network
from interposer.ir.regions import places
from interposer.ops.control import Constant, Input
from interposer.ops.control_flow import ControlFlow
from interposer.ops.reshape import Reshape

__all__ = ["require_declared_shapes", "with_expanded_dims"]


def require_declared_shapes(network: Network) -> None:
    """Check that every shape of a network is declared, so that none has to be inferred.

    Infos that inputs and constants have themselves count as declared.

    Raises:
        InvalidNetworkError: lists all outputs of layers whose declared shape is missing or has unknown dimensions.
    """
    errors = [
        f"layer {place.name!r} ({place.layer.kind}): {error}"
        for place in places(network.graph)
        if not isinstance(place.layer.op, Input | Constant)
        for value in place.layer.outputs
        for error in _undeclared(value)
    ]
    if errors:
        raise InvalidNetworkError(errors, network.name)


def _undeclared(value: Value) -> Iterator[str]:
    title = "its output" if len(value.producer.outputs) == 1 else f"its output {value.index}"
    if value.declared is None:
        problem = "has no declared shape, and shape_inference='validate' infers none"
        yield f"{title} {problem}; declare it with outputs=[...]"
    elif not value.declared.is_concrete:
        yield f"{title} is declared as {value.declared}; shape_inference='validate' needs every dimension"


def with_expanded_dims(network: Network) -> Network:
    """Return a network in which declared shapes may have more or fewer dimensions of 1 than the inferred shapes.

    If they do, a Reshape gives the tensor the declared shape. The given network is not changed.
    """
    copy = Network(network.name, network.graph.clone())
    order, _ = copy.graph.schedule()
    for layer in order:
        for mismatch in () if isinstance(layer.op, ControlFlow) else _mismatched(layer):
            _expand(copy.graph, *mismatch)
        infer_layer(layer)
    return copy


def _mismatched(layer: Layer) -> list[tuple[Value, TensorInfo]]:
    """Return the outputs whose declared shape differs from the inferred one in dimensions of 1, with inferred infos."""
    if any(value.info is None for value in layer.values) or layer.op.violations(*layer.input_infos):
        return []
    try:
        inferred_infos = layer.op.infer_infos(*layer.input_infos)
    except InvalidArgumentError:  # the validation of the network reports it
        return []
    outputs_and_infos = zip(layer.outputs, inferred_infos, strict=True)
    return [
        (value, info)
        for value, info in outputs_and_infos
        if info is not None and _differs_in_ones(value.declared, info)
    ]


def _differs_in_ones(declared_info: TensorInfo | None, inferred_info: TensorInfo) -> bool:
    if (
        declared_info is None
        or not (declared_info.is_concrete and inferred_info.is_concrete)
        or declared_info.shape == inferred_info.shape
    ):
        return False
    if declared_info.quantization is not None and declared_info.quantization.per_axis:
        return False
    return _without_ones(declared_info) == _without_ones(inferred_info)


def _without_ones(info: TensorInfo) -> list[int]:
    return [int(size) for size in info.shape if size != 1]


def _expand(graph: Graph, value: Value, inferred_info: TensorInfo) -> None:
    declared_info, layer = value.declared, value.producer
    assert declared_info is not None
    value.declared = declared_info.with_shape(inferred_info.shape)
    infer_layer(layer)
    shape = tuple(int(size) for size in declared_info.shape)
    name = f"{layer.name}/expanded" if len(layer.outputs) == 1 else f"{layer.name}/expanded:{value.index}"
    reshape = graph.add(Reshape(target_shape=shape), [value], name=name, outputs=[declared_info], source=layer.source)
    graph.replace_uses(value, reshape.output, lambda use: use.layer is not reshape)
    infer_layer(reshape)
