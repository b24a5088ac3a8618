"""Equality of graphs: layers are matched by name, and the order of their addition does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from interposer.core.codec import codec_of, same_constant
from interposer.core.schema import Op
from interposer.ir.graph import Graph, Layer, Value

__all__ = ["differences", "same_constant", "same_graph"]

_FIELDS: Final = ("backend", "hint", "source", "replaced")


def same_graph(a: Graph, b: Graph, *, opaque: bool = True) -> bool:
    """Return True if both graphs have the same layers with the same connections, infos, constants and backends.

    With `opaque=False`, attributes of arbitrary type (such as a backend's compiled object) are not compared.
    """
    return next(differences(a, b, opaque=opaque), None) is None


def differences(a: Graph, b: Graph, *, opaque: bool = True) -> Iterator[str]:
    """Yield one line for each difference of two graphs; none if they are equal.

    With `opaque=False`, attributes of arbitrary type (such as a backend's compiled object) are not compared.
    """
    if a.name != b.name:
        yield f"the graphs are called {a.name!r} and {b.name!r}"
    b_layers = {layer.name: layer for layer in b}
    for layer in a:
        b_layer = b_layers.pop(layer.name, None)
        if b_layer is None:
            yield f"only the first graph has layer {layer}"
        else:
            yield from (f"layer {layer}: {difference}" for difference in _layer_differences(layer, b_layer, opaque))
    yield from (f"only the second graph has layer {layer}" for layer in b_layers.values())


def _layer_differences(a: Layer, b: Layer, opaque: bool) -> Iterator[str]:
    if not _same_op(a.op, b.op, opaque):
        yield f"its operator is {a.op!r}, and {b.op!r}"
    inputs = _input_names(a), _input_names(b)
    if inputs[0] != inputs[1]:
        yield f"it takes ({', '.join(inputs[0])}), and ({', '.join(inputs[1])})"
    for name in _FIELDS:
        if getattr(a, name) != getattr(b, name):
            yield f"{name} is {getattr(a, name)!r}, and {getattr(b, name)!r}"
    if len(a.outputs) != len(b.outputs) or len(a.regions) != len(b.regions):
        yield "it has not the same number of outputs or regions"
        return
    for value_a, value_b in zip(a.outputs, b.outputs, strict=True):
        yield from _value_differences(value_a, value_b)
    for index, (region_a, region_b) in enumerate(zip(a.regions, b.regions, strict=True)):
        yield from (f"region {index}: {difference}" for difference in differences(region_a, region_b, opaque=opaque))


def _same_op(a: Op, b: Op, opaque: bool) -> bool:
    if opaque or type(a) is not type(b):
        return a == b
    compared_attributes = [(name, codec) for name, codec in a.codecs().items() if codec is not codec_of(Any)]
    return all(codec.equal(getattr(a, name), getattr(b, name)) for name, codec in compared_attributes)


def _input_names(layer: Layer) -> list[str]:
    """Return each input of a layer as ``%producer:index``, or ``_`` if it is absent.

    Absent inputs at the end are left out, because they have no meaning.
    """
    names = ["_" if value is None else f"%{value.producer.name}:{value.index}" for value in layer.inputs]
    while names and names[-1] == "_":
        names.pop()
    return names


def _value_differences(a: Value, b: Value) -> Iterator[str]:
    for description, info_a, info_b in (("info", a.info, b.info), ("declared info", a.declared, b.declared)):
        if info_a != info_b:
            yield f"the {description} of output {a.index} is {info_a}, and {info_b}"
        elif not same_constant(info_a, info_b):
            yield f"the constant in the {description} of output {a.index} is another"
