"""`Network`: a graph that is being built by hand or by a front end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from interposer.core.errors import InvalidArgumentError, InvalidNetworkError, did_you_mean, expect
from interposer.core.schema import Op
from interposer.core.types import Quantization, TensorInfo
from interposer.ir.builders import Builders
from interposer.ir.graph import Graph, Layer, Value, binding_id, cycle_problem
from interposer.ir.inference import infer_layer
from interposer.ir.states import State, free_binding_id, initial_array, state_problems, states_of
from interposer.ops.control import Constant, Input, Output

__all__ = ["Network"]


class Network(Builders):
    """A network of layers, to be optimized for some backends and run.

    Layers are added with `add_layer` or with an operator's method (`add_convolution2d_layer` ...). The inputs of a
    layer are values: outputs of layers that were added before. A layer with one output can be passed instead of the
    output. Shape errors do not raise at once: `validate` and `optimize` report all of them. Not thread safe.

    >>> network = Network("sum")
    >>> x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    >>> y = network.add_addition_layer(x, x, name="twice")
    >>> _ = network.add_output_layer(0, y)
    >>> network.validate()
    """

    def __init__(self, name: str = "network", graph: Graph | None = None) -> None:
        expect(name, str, "a network's name must be a text")
        self.graph = graph if graph is not None else Graph(name)

    @property
    def name(self) -> str:
        """The network's name in messages."""
        return self.graph.name

    def add_layer(
        self,
        op: Op,
        *values: Value | Layer | None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
        source: str = "",
        regions: Sequence[Network | Graph] = (),
    ) -> Layer:
        """Add a layer that runs `op` on `values`, one for each operand in order (None skips an optional one).

        `outputs` declares infos of the outputs: needed for quantized results, checked for everything else. Operands
        that are not passed can be connected later with `connect`. `regions` are the subgraphs of a control flow layer;
        the layer gets copies of them.

        Raises:
            InvalidArgumentError: too many values, a value of another network, or an argument that is not a value.
        """
        declared_infos = outputs if isinstance(outputs, Sequence) else () if outputs is None else (outputs,)
        expect(op, Op, "add_layer needs an operator such as Addition()")
        inputs = [_as_value(value) for value in values]
        copies = [_as_graph(region).clone() for region in regions] if regions else ()
        layer = self.graph.add(op.canonical(), inputs, name=name, outputs=declared_infos, source=source, regions=copies)
        infer_layer(layer)
        return layer

    def add_input_layer(self, binding_id: int, info: TensorInfo, name: str | None = None) -> Layer:
        """Add an input of the network with this info; runs pass its tensor by `binding_id`."""
        expect(info, TensorInfo | None, "an input is described by a TensorInfo(shape, dtype)")
        return self.add_layer(Input(binding_id), name=name or f"input_{binding_id}", outputs=info)

    def add_output_layer(self, binding_id: int, value: Value | Layer | None = None, name: str | None = None) -> Layer:
        """Add an output of the network, which is `value`; runs return its tensor by `binding_id`.

        `value` may also be connected later with `connect`.
        """
        values = () if value is None else (value,)
        return self.add_layer(Output(binding_id), *values, name=name or f"output_{binding_id}")

    def add_state(self, name: str, info: TensorInfo, initial: Any = None) -> Layer:
        """Add a state, a tensor that the network keeps from one run to the next; return the layer that reads it.

        States are no inputs or outputs: the runtime stores them with the loaded network. `set_state` says which value
        the state has after a run.

        Args:
            name: a name that no other state of the network has.
            info: type, shape and quantization of the state; the shape must be known.
            initial: the value before the first run, an array of this shape; None is zeros, or the zero point if the
                state is quantized. An array is not copied and must not be changed afterwards.

        Raises:
            InvalidArgumentError: the name is empty or used, the shape is not known, or the initial value does not fit.

        >>> network = Network("count")
        >>> runs = network.add_state("runs", TensorInfo((), "int64"))
        >>> one = network.add_constant_layer(1)
        >>> network.set_state("runs", network.add_addition_layer(runs, one))
        >>> _ = network.add_output_layer(0, runs)
        """
        expect(name, str, "a state's name must be a text")
        expect(info, TensorInfo, "a state is described by a TensorInfo(shape, dtype)")
        if not name or any(state.name == name for state in self.states):
            raise InvalidArgumentError(f"the network has a state {name!r} already" if name else "a state needs a name")
        if not info.is_tensor or not info.is_concrete:
            raise InvalidArgumentError(f"the state {name!r} is {info}; expected a tensor of known shape")
        value = None if initial is None else initial_array(f"the initial value of the state {name!r}", info, initial)
        op = Input(free_binding_id(self.graph), name, value)
        return self.add_layer(op, name=name, outputs=info.with_constant(None))

    def set_state(self, name: str, value: Value | Layer) -> None:
        """Let a state have this value after each run; without it, the state keeps the value that it has.

        Raises:
            InvalidArgumentError: the network has no state of this name, or its value is set already.
        """
        state = next((state for state in self.states if state.name == name), None)
        if state is None:
            names = [state.name for state in self.states]
            raise InvalidArgumentError(f"the network has no state {name!r}{did_you_mean(name, names)}")
        if state.target is not None:
            raise InvalidArgumentError(f"the state {name!r} is set already, by layer {state.target}")
        self.add_layer(Output(binding_id(state.source), name), value, name=f"{state.source.name}:next")

    @property
    def states(self) -> list[State]:
        """The states of the network, in the order in which they were added."""
        return states_of(self.graph)

    def add_constant_layer(
        self, value: Any, quantization: Quantization | None = None, name: str | None = None
    ) -> Layer:
        """Add a constant: an array or what NumPy converts to one, with an optional quantization.

        An array is not copied and must not be changed afterwards.
        """
        return self.add_layer(Constant(value, quantization), name=name)

    def connect(self, value: Value | Layer, layer: Layer, operand: int | str = 0) -> None:
        """Connect a value to an operand of a layer, given by its number or its name; infos are inferred again."""
        expect(layer, Layer, "connect needs the layer that takes the value")
        index = operand if isinstance(operand, int) else _operand_index(layer, operand)
        error = layer.op.arity_problem(index + 1)
        if error or index < 0:
            raise InvalidArgumentError(error or f"an operand's number must not be negative, but {index} was given")
        self.graph.set_input(layer, index, _as_value(value))
        self._infer_from(layer)

    def _infer_from(self, layer: Layer) -> None:
        """Infer this layer and all layers that depend on changed infos again; do nothing if it is in a cycle."""
        changed_layers: set[Layer] = set()
        for dependent in _dependents(layer):
            if dependent is layer or any(value.producer in changed_layers for value in dependent.values):
                previous_infos = _infos_and_constants(dependent)
                infer_layer(dependent)
                changed_layers |= {dependent} if _infos_and_constants(dependent) != previous_infos else set()

    @property
    def inputs(self) -> dict[int, Layer]:
        """The Input layers by binding id."""
        return {binding_id(layer): layer for layer in self.graph.inputs}

    @property
    def outputs(self) -> dict[int, Layer]:
        """The Output layers by binding id."""
        return {binding_id(layer): layer for layer in self.graph.outputs}

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.graph)

    def __len__(self) -> int:
        return len(self.graph)

    def validate(self) -> None:
        """Check that the network can be optimized.

        Raises:
            InvalidNetworkError: lists all errors, such as unconnected inputs, wrong shapes or duplicate binding ids.
        """
        errors = list(self.problems())
        if errors:
            raise InvalidNetworkError(errors, self.name)

    def problems(self) -> Iterator[str]:
        """Yield a message for each error in the network."""
        order, stuck_layers = self.graph.schedule()
        if stuck_layers:
            yield cycle_problem(stuck_layers)
        for layer in order:
            for error in infer_layer(layer):
                yield f"layer {layer}: {error}"
        yield from _border_problems(self.graph)
        yield from state_problems(self.graph)

    def text(self, *, elide: int | None = None) -> str:
        """Return the network in the text format, with all constants; `parse` reads back an identical network.

        Additional tensor names of a model file (`Value.aliases`) are not included. ``str(network)`` is shorter: it
        shows large constants as a hash.

        Args:
            elide: show constants of more elements than this as a hash; such text cannot be read back.
        """
        from interposer.ir.text import print_graph  # noqa: PLC0415 - most networks come from files of other formats

        return print_graph(self.graph, elide=elide) + "\n"

    def to_dot(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the network in the DOT language of Graphviz; with a path, also write it to this file.

        Layers are nodes, tensors are edges labeled with their shapes. ``dot -Tsvg net.dot`` draws it.

        Raises:
            FileWriteError: the file cannot be written.
        """
        from interposer.ir.dot import save_dot  # noqa: PLC0415 - seldom needed

        return save_dot(self.graph, path)

    @classmethod
    def parse(cls, text: str) -> Network:
        """Return the network that a text in the format of `Network.text` describes.

        Raises:
            ParseError: the text is not a valid network; `where` is the line and column.
        """
        expect(text, str, "the text form must be a text")
        from interposer.ir.text import parse_graph  # noqa: PLC0415 - most networks come from files of other formats

        network = cls(graph=parse_graph(text))
        for layer in network.graph.schedule()[0]:
            infer_layer(layer)
        return network

    def _repr_html_(self) -> str:
        from interposer.ir.html import graph_html  # noqa: PLC0415 - only notebooks need it

        return graph_html("Network", self.graph)

    def __str__(self) -> str:
        return str(self.graph)

    def __repr__(self) -> str:
        return f"<Network {self.name!r}: {len(self)} layers>"


def _infos_and_constants(layer: Layer) -> list[tuple[TensorInfo | None, int]]:
    return [(value.info, id(value.constant)) for value in layer.outputs]


def _dependents(layer: Layer) -> list[Layer]:
    """Return the layer and all layers that depend on it, in topological order; empty if it depends on itself."""
    order: list[Layer] = []
    visited_layers = {layer}
    path = [(layer, iter(_consumers(layer)))]
    while path:
        path_end, consumers = path[-1]
        next_layer = next(consumers, None)
        if next_layer is None:
            order.append(path_end)
            path.pop()
        elif next_layer is layer:
            return []
        elif next_layer not in visited_layers:
            visited_layers.add(next_layer)
            path.append((next_layer, iter(_consumers(next_layer))))
    return order[::-1]


def _consumers(layer: Layer) -> list[Layer]:
    return [use.layer for value in layer.outputs for use in value.uses]


def _border_problems(graph: Graph) -> Iterator[str]:
    for kind, layers in (("input", graph.sources), ("output", graph.sinks)):
        layer_of_id: dict[int, Layer] = {}
        for layer in layers:
            binding = binding_id(layer)
            if binding in layer_of_id:
                yield f"{kind} binding id {binding} is used by layers {layer_of_id[binding].name!r} and {layer.name!r}"
            layer_of_id.setdefault(binding, layer)
    if not graph.sinks and any(not isinstance(layer.op, Input) for layer in graph):
        yield "it has no output layer"


def _operand_index(layer: Layer, name: str) -> int:
    layer.operand(name)
    return next(index for index, declared_operand in enumerate(layer.op.operands) if declared_operand.name == name)


def _as_graph(network: Network | Graph) -> Graph:
    if not isinstance(network, Network | Graph):
        raise InvalidArgumentError(f"a region must be a Network or a Graph, not {network!r}")
    return network.graph if isinstance(network, Network) else network


def _as_value(value: Value | Layer | None) -> Value | None:
    return value.output if isinstance(value, Layer) else value
