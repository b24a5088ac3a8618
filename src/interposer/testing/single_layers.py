"""Execution of single layers of a network, each as a separate network."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Layer, Value, binding_id
from interposer.ir.network import Network
from interposer.ir.states import input_value
from interposer.ops.control import Constant, Input, Output
from interposer.testing.bench import Bench, Loaded
from interposer.testing.oracle import layer_values

__all__ = ["layer_alone", "one_by_one"]

Kind = tuple[object, ...]
"""What equal layers share: the operator, the infos of the inputs, the constants, the declared infos, the regions."""


def layer_alone(
    layer: Layer, arrays: Mapping[Value, Array], *, merged: bool = True
) -> tuple[Network, dict[int, Array]]:
    """Return a network that consists of one layer of another network, and its input arrays by binding id.

    The inputs are taken from `arrays`, which has the values of the other network; constants stay constant. A value that
    the layer reads twice becomes one input, or several inputs with equal arrays if `merged` is False.
    """
    network, feeds = Network(layer.name), dict[int, Array]()
    stand_ins: dict[Value, Layer] = {}
    values: list[Layer | None] = []
    for value in layer.inputs:
        if value is None:
            values.append(None)
            continue
        if not merged or value not in stand_ins:
            array = arrays[value] if merged else arrays[value].copy()  # equal arrays in separate memory
            stand_ins[value] = _stand_in(network, value, array, feeds)
        values.append(stand_ins[value])
    copy = network.add_layer(layer.op, *values, name=layer.name, outputs=_declared(layer), regions=layer.regions)
    for value in copy.outputs:
        network.add_output_layer(value.index, value)
    return network, feeds


def _stand_in(network: Network, value: Value, array: Array, feeds: dict[int, Array]) -> Layer:
    """Add a constant or an input with this array to the network, in place of a value of another network.

    The array of an input is added to `feeds`.
    """
    info, binding_id = value.known.with_constant(None), len(feeds)
    if value.is_constant:
        return network.add_constant_layer(array, info.quantization)
    feeds[binding_id] = array
    return network.add_input_layer(binding_id, info)


class _SingleLayers:
    """Runs single layers of networks on the backend, each as a network of its own.

    A network stays loaded until `close`, so that equal layers can run in it on other arrays.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.loaded: dict[Kind, Loaded] = {}
        self._stack = ExitStack()

    def close(self) -> None:
        """Unload the networks."""
        self._stack.close()

    def run(self, kind: Kind, layer: Layer, arrays: Mapping[Value, Array]) -> dict[int, Array]:
        """Run one layer as a network of its own on the arrays in `arrays`, and return the results by index.

        Layers with an equal `kind` share one network, which is optimized and loaded once.
        """
        network, feeds = layer_alone(layer, arrays, merged=False)
        if kind not in self.bench.optimized_alone:
            self.bench.optimized_alone[kind] = self.bench.optimize(network)
        if kind not in self.loaded:
            loaded = self.bench.loaded(self.bench.optimized_alone[kind])
            self.loaded[kind] = self._stack.enter_context(loaded)
        return self.loaded[kind].run(feeds)


def _run_alone(singles: _SingleLayers, layer: Layer, values: Mapping[Value, Array]) -> dict[int, Array]:
    """Return the backend's results, by index, for one layer on the arrays in `values`.

    The same layer on the same arrays runs once. A value that the layer reads twice is passed as two tensors, so that
    layers that confuse the two are detected.
    """
    bench = singles.bench
    arrays = [values[value] for value in layer.values]
    if any(array.dtype.kind == "O" for array in arrays):
        return bench.run(*layer_alone(layer, values, merged=False))
    contents = tuple(array.tobytes() for array in arrays)
    constants = tuple(
        content if value.is_constant else None for value, content in zip(layer.values, contents, strict=True)
    )
    kind = (layer.op, tuple(_given(layer)), constants, tuple(_declared(layer)), tuple(layer.regions))
    key = (kind, contents)
    if key not in bench.alone:
        bench.alone[key] = singles.run(kind, layer, values)
    return dict(bench.alone[key])


def _given(layer: Layer) -> Iterator[TensorInfo | int | None]:
    """Yield what distinguishes the layer's inputs, for a key of equal layers.

    That is the info of each input, None for an absent input, and the position of the first use for a repeated value.
    """
    first_positions: dict[Value, int] = {}
    for position, value in enumerate(layer.inputs):
        if value is None:
            yield None
        elif value in first_positions:
            yield first_positions[value]
        else:
            first_positions[value] = position
            yield value.known.with_constant(None)


def _declared(layer: Layer) -> Sequence[Any]:
    return [value.declared for value in layer.outputs]


def one_by_one(
    bench: Bench, network: Network, feeds: Mapping[int, Array], held_back: Collection[str] = ()
) -> dict[int, Array]:
    """Run each layer of a network separately, on the results of the layers before it; return the outputs by binding id.

    `feeds` are the inputs by binding id. Layers whose names are in `held_back` are computed by their reference kernels,
    all others by the backend.
    """
    arrays: dict[Value, Array] = {}
    with closing(_SingleLayers(bench)) as singles:
        _run_layers(singles, network, feeds, held_back, arrays)
    return {binding_id(layer): arrays[layer.values[0]] for layer in network.graph.outputs}


def _run_layers(
    singles: _SingleLayers,
    network: Network,
    feeds: Mapping[int, Array],
    held_back: Collection[str],
    arrays: dict[Value, Array],
) -> None:
    """Run all layers of a network one by one, and add the array of every value to `arrays`.

    `feeds` are the network's inputs by binding id. Layers named in `held_back` are computed by the reference kernels.
    """
    for layer in network.graph.topological():
        if isinstance(layer.op, Input):
            arrays[layer.output] = input_value(layer, feeds)
        elif isinstance(layer.op, Constant):
            arrays[layer.output] = layer.op.value
        elif layer.name in held_back:
            arrays.update(zip(layer.outputs, layer_values(layer, arrays), strict=True))
        elif not isinstance(layer.op, Output):
            results = _run_alone(singles, layer, arrays)
            arrays.update({value: results[value.index] for value in layer.outputs})
