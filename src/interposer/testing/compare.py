"""Layers of a network by themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from interposer.ir.graph import Layer, Value, binding_id
from interposer.ir.network import Network
from interposer.ops.control import Constant, Input, Output
from interposer.testing.bench import Bench
from interposer.testing.oracle import layer_values
from interposer.types import Array

__all__ = ["layer_alone", "one_by_one"]


def layer_alone(layer: Layer, known: Mapping[Value, Array]) -> tuple[Network, dict[int, Array]]:
    """A network of one layer of another network, with the arrays that go into it there."""
    network, feeds = Network(layer.name), dict[int, Array]()
    inside: dict[Value, Layer] = {}
    for value in dict.fromkeys(layer.values):
        info, number = value.known.with_constant(None), len(feeds)
        if value.is_constant:
            inside[value] = network.add_constant_layer(known[value], info.quantization)
        else:
            inside[value] = network.add_input_layer(number, info)
            feeds[number] = known[value]
    values = [None if value is None else inside[value] for value in layer.inputs]
    made = network.add_layer(layer.op, *values, name=layer.name, outputs=_declared(layer), regions=layer.regions)
    for value in made.outputs:
        network.add_output_layer(value.index, value)
    return network, feeds


def _run_alone(bench: Bench, layer: Layer, known: Mapping[Value, Array]) -> dict[int, Array]:
    """What the backend gives for one layer of another network; the same layer on the same arrays runs once."""
    arrays = [known[value] for value in layer.values]
    if any(array.dtype.kind == "O" for array in arrays):
        return bench.run(*layer_alone(layer, known))
    inputs = tuple(
        (value.known.with_constant(None), value.is_constant, array.tobytes())
        for value, array in zip(layer.values, arrays, strict=True)
    )
    key = (layer.op, inputs, tuple(value is None for value in layer.inputs), tuple(_declared(layer)))
    if key not in bench.alone:
        bench.alone[key] = bench.run(*layer_alone(layer, known))
    return dict(bench.alone[key])


def _declared(layer: Layer) -> Sequence[Any]:
    return [value.declared for value in layer.outputs]


def one_by_one(
    bench: Bench, network: Network, feeds: Mapping[int, Array], held_back: Collection[str] = ()
) -> dict[int, Array]:
    """What the layers of a network give by themselves, each on what those before it gave.

    Layers whose names are in `held_back` are computed by their reference kernels, all others by the backend.
    """
    known: dict[Value, Array] = {}
    for layer in network.graph.topological():
        if isinstance(layer.op, Input):
            known[layer.output] = feeds[binding_id(layer)]
        elif isinstance(layer.op, Constant):
            known[layer.output] = layer.op.value
        elif layer.name in held_back:
            known.update(zip(layer.outputs, layer_values(layer, known), strict=True))
        elif not isinstance(layer.op, Output):
            found = _run_alone(bench, layer, known)
            known.update({value: found[value.index] for value in layer.outputs})
    return {binding_id(layer): known[layer.values[0]] for layer in network.graph.outputs}
