"""States: tensors that a network keeps from one run to the next.

A state is a pair of an Input layer and an Output layer with its name. The Input reads the value that the state has
before a run, and the Output sets the value that it has after the run. Neither belongs to the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from interposer.core.errors import InvalidArgumentError
from interposer.core.masks import plain_array
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ops.control import Input, Output

__all__ = [
    "State",
    "direct_sinks",
    "free_binding_id",
    "initial_array",
    "initial_value",
    "input_value",
    "state_problems",
    "states_of",
]


class State(NamedTuple):
    """A state of a graph: its name, the Input layer that reads it, and the Output layer that sets it.

    `target` is None if no layer sets the state; it then keeps its value. `read` is the output of `source`. `info` and
    `initial` stay known after the end of a graph that was freed by `Graph.free_after_last_use`.
    """

    name: str
    source: Layer
    target: Layer | None
    read: Value

    @property
    def info(self) -> TensorInfo:
        """The info of the state's tensor."""
        return self.read.known

    @property
    def initial(self) -> Array:
        """A new array with the value of the state before the first run."""
        op = self.source.op
        assert isinstance(op, Input)
        return initial_value(self.info, op.initial)


def states_of(graph: Graph) -> list[State]:
    """Return the states of a graph, in the order in which they were added."""
    targets = {layer.op.state: layer for layer in graph if isinstance(layer.op, Output) and layer.op.state}
    sources = [layer for layer in graph if isinstance(layer.op, Input) and layer.op.state]
    sources.sort(key=lambda layer: -layer.op.binding_id)  # type: ignore[attr-defined] # an Input has one
    return [State(_name(layer), layer, targets.get(_name(layer)), layer.output) for layer in sources]


def direct_sinks(graph: Graph) -> list[Layer]:
    """Return the Output layers, without those that set a state to a value which is an output to the caller as well."""
    returned_values = {layer.values[0] for layer in graph.outputs}
    return [layer for layer in graph.sinks if not _is_state(layer) or layer.values[0] not in returned_values]


def free_binding_id(graph: Graph) -> int:
    """Return a binding id for the layers of a new state: a negative one that no Input or Output of the graph has."""
    return min(0, *(layer.op.binding_id for layer in graph if isinstance(layer.op, Input | Output)), 0) - 1


def initial_array(title: str, info: TensorInfo, value: Any) -> Array:
    """Return a value for a state as an array of the type of `info`; `title` names it in errors.

    Raises:
        InvalidArgumentError: the value has another shape or type.
    """
    array = (
        plain_array(value, title, InvalidArgumentError)
        if hasattr(value, "dtype")
        else np.asarray(value, info.dtype.numpy)
    )
    if array.dtype != info.dtype.numpy or not info.shape.accepts(TensorInfo(array.shape).shape):
        raise InvalidArgumentError(f"{title} is {array.dtype}{list(array.shape)}; expected {info}")
    return array


def initial_value(info: TensorInfo, initial: Array | None) -> Array:
    """Return a new array with the initial value of a state: `initial`, or zeros (zero points, empty texts)."""
    shape = tuple(map(int, info.shape))
    if initial is not None:
        return np.array(initial)
    if info.dtype.numpy.kind == "O":
        return np.full(shape, "", object)
    array = np.zeros(shape, info.dtype.numpy)
    if info.quantization is not None:
        zero_points: Any = np.asarray(info.quantization.zero_points, info.dtype.numpy)
        axis = info.quantization.axis
        array[...] = (
            zero_points[0]
            if axis is None
            else zero_points.reshape([-1 if index == axis else 1 for index in range(len(shape))])
        )
    return array


def input_value(layer: Layer, feeds: Mapping[int, Array]) -> Array:
    """Return the value of an Input layer: the caller's array in `feeds` by binding id, or a state's initial value."""
    op = layer.op
    assert isinstance(op, Input)
    return initial_value(layer.output.known, op.initial) if op.state else feeds[op.binding_id]


def state_problems(graph: Graph) -> Iterator[str]:
    """Yield a message for each error in the states of a graph."""
    layers = [layer for layer in graph if isinstance(layer.op, Input | Output) and layer.op.state]
    if layers and graph.owner is not None:
        yield f"a region has no states, but {layers[0]} has the state {_name(layers[0])!r}"
        return
    for kind, verb in ((Input, "read"), (Output, "set")):
        counts = Counter(_name(layer) for layer in layers if isinstance(layer.op, kind))
        yield from (f"the state {name!r} is {verb} by {count} layers" for name, count in counts.items() if count > 1)
    sources = {_name(layer): layer for layer in layers if isinstance(layer.op, Input)}
    for layer in layers:
        source = sources.get(_name(layer))
        if source is None:
            yield f"layer {layer} sets the state {_name(layer)!r}, which the network does not have"
        elif layer is source:
            yield from _source_problems(layer)
        else:
            yield from _target_problems(layer, source)


def _source_problems(layer: Layer) -> Iterator[str]:
    title, info, op = f"the state {_name(layer)!r}", layer.output.info, layer.op
    assert isinstance(op, Input)
    if info is None or not info.is_tensor or not info.is_concrete:
        yield f"{title} is {info if info is not None else 'unknown'}; expected a tensor of known shape"
        return
    if op.initial is None:
        return
    try:
        initial_array(f"the initial value of {title}", info, op.initial)
    except InvalidArgumentError as error:
        yield str(error)


def _target_problems(layer: Layer, reader: Layer) -> Iterator[str]:
    info, declared_info = layer.values[0].info if layer.values else None, reader.output.info
    if info is None or declared_info is None:
        return
    shape_fits = info.shape.accepts(declared_info.shape) and info.quantization == declared_info.quantization
    if not shape_fits or info.dtype is not declared_info.dtype:
        yield f"the state {_name(layer)!r} is {declared_info}, but is set to {info}"


def _is_state(layer: Layer) -> bool:
    return bool(_name(layer))


def _name(layer: Layer) -> str:
    op = layer.op
    assert isinstance(op, Input | Output)
    return op.state
