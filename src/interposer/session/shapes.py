"""Networks whose input shapes are open, and what they become where shapes are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, TypeAlias

from interposer.errors import InvalidArgumentError, did_you_mean
from interposer.ir.network import Network
from interposer.types import Dim, TensorShape

__all__ = ["Shapes", "bound", "specialised"]

Shapes: TypeAlias = Mapping[str, Sequence[int] | int]


def bound(network: Network, shapes: Shapes) -> Network:
    """The network with shapes for inputs by name, and numbers for named extents.

    Raises:
        InvalidArgumentError: an input or an extent that the network has not, or a shape that an input cannot have.
        InvalidNetworkError: the network has faults, or does not fit the shapes.
    """
    network.validate()
    inputs = {one.name: one.output.known.shape for one in network.graph.inputs}
    _check_names(shapes, inputs)
    given = {name: _given(name, shape, shapes.get(name, shape)) for name, shape in inputs.items()}
    extents = {name: int(extent) for name, extent in shapes.items() if isinstance(extent, Integral)}
    for name, shape in inputs.items():
        _learn(extents, shape, given[name])
    return specialised(network, {name: _filled(shape, extents) for name, shape in given.items()})


def _check_names(shapes: Mapping[str, Any], inputs: Mapping[str, TensorShape]) -> None:
    extents = {dim.name for shape in inputs.values() for dim in shape if isinstance(dim, Dim) and dim.name}
    for name, given in shapes.items():
        kind, known = ("extent", sorted(extents)) if isinstance(given, Integral) else ("input", list(inputs))
        if name not in known:
            hint, names = did_you_mean(str(name), known), ", ".join(known) or "none"
            raise InvalidArgumentError(f"shapes: the network has no {kind} {name!r}{hint} (it has: {names})")


def _given(name: str, declared: TensorShape, given: Any) -> TensorShape:
    shape = declared if isinstance(given, Integral) else TensorShape(given)
    if not declared.accepts(shape):
        raise InvalidArgumentError(f"shapes: {name!r} has the shape {declared}; {shape} was given")
    return TensorShape(dim if isinstance(wanted, Dim) else wanted for dim, wanted in zip(declared, shape, strict=True))


def _learn(extents: dict[str, int], declared: TensorShape, given: TensorShape) -> None:
    """An extent that a given shape settles is the same wherever it has that name."""
    for dim, extent in zip(declared, given, strict=True):
        if not isinstance(dim, Dim) or isinstance(extent, Dim) or dim.name is None:
            continue
        if extents.setdefault(dim.name, extent) != extent:
            raise InvalidArgumentError(f"shapes: {dim.name!r} is both {extents[dim.name]} and {extent}")


def _filled(shape: TensorShape, extents: Mapping[str, int]) -> TensorShape:
    return TensorShape(extents.get(dim.name or "", dim) if isinstance(dim, Dim) else dim for dim in shape)


def specialised(network: Network, shapes: Mapping[str, TensorShape]) -> Network:
    """The network with its inputs, by name, given these shapes; itself where they have them already.

    Raises:
        InvalidNetworkError: shapes that do not fit the layers.
    """
    if all(one.output.known.shape == shapes[one.name] for one in network.graph.inputs):
        return network
    graph = network.graph.clone()
    for layer in graph.inputs:
        known = layer.output.known
        layer.output.declared = known.with_shape(shapes[layer.name])
    made = Network(graph=graph)
    made.validate()
    return made
