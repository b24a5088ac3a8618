"""The graph: layers that read and produce values; every value knows its producer and its uses.

A `Graph` owns its layers and stores them in the order in which they were added. `Graph.topological` returns an order in
which they can run. All changes go through the methods of the graph, which keep uses and producers consistent. Not safe
to change from several threads.
"""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from interposer.core.errors import InvalidArgumentError, VerificationError
from interposer.core.schema import Op
from interposer.core.types import Array, TensorInfo
from interposer.ir.merged_names import NO_NAMES, MergedNames
from interposer.ops.control import Constant, Input, Output

__all__ = ["Graph", "Inference", "Layer", "Use", "Uses", "Value", "binding_id", "cycle_problem"]

SHOWN: Final = 10
"""How many of the layers in a cycle an error names."""


_info: Final[Callable[[Any], Any]] = attrgetter("info")


class Use(NamedTuple):
    """One place where a value is read: by `layer`, as its operand number `position`."""

    layer: Layer
    position: int


_use: Final = partial(tuple.__new__, Use)
"""Makes a `Use` of a pair; a fast path, as every layer of a network makes some."""


class Uses(Collection[Use]):
    """All uses of one value by layers, in order of creation.

    Adding, removing and looking up a use take constant time.
    """

    __slots__ = ("_uses",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, uses: Iterable[Use] = ()) -> None:
        # the keys are instances of `Use`
        self._uses: dict[tuple[Layer, int], None] = dict.fromkeys(uses) if uses else {}

    def __iter__(self) -> Iterator[Use]:
        return iter(self._uses)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._uses)

    def __contains__(self, use: object) -> bool:
        return use in self._uses

    def __eq__(self, other: object) -> bool:
        """Return True for the same uses in the same order, also those of a list."""
        return list(self) == list(other) if isinstance(other, Uses | list) else NotImplemented

    def __repr__(self) -> str:
        return f"Uses({list(self)!r})"

    def add(self, use: Use) -> None:
        """Add a use at the end."""
        self._uses[use] = None

    def remove(self, use: Use) -> None:
        """Remove a use; `KeyError` if it is absent."""
        del self._uses[use]

    def clear(self) -> None:
        """Remove all uses."""
        self._uses.clear()


_no_uses: Final = partial(object.__new__, Uses)
"""Makes a `Uses` without its dictionary; a fast path, as every value of a network has one."""


class Value:
    """A tensor in the graph (Arm NN's output slot): output number `index` of `producer`.

    `info` is None while it is unknown. `declared` is the info that was passed when the layer was added: inference takes
    the quantization from it and checks the rest. `factory` is the id of the tensor handle factory for its memory, once
    the optimizer has chosen one. `aliases` are additional names of the tensor in a model file.
    """

    __slots__ = ("aliases", "declared", "factory", "index", "info", "producer", "uses")

    def __init__(self, producer: Layer, index: int, declared: TensorInfo | None = None) -> None:
        self.producer = producer
        self.index = index
        self.declared = declared
        self.info: TensorInfo | None = None
        self.factory: str | None = None
        self.aliases: tuple[str, ...] = ()
        self.uses = uses = _no_uses()
        uses._uses = {}

    @property
    def known(self) -> TensorInfo:
        """The info; raises `VerificationError` if it is unknown."""
        if self.info is None:
            raise VerificationError([f"the tensor {self.name} has no known info"])
        return self.info

    @property
    def constant(self) -> Array | None:
        """The tensor's value as an array if it is known before running, else None."""
        return self.info.constant if self.info is not None else None

    @property
    def is_constant(self) -> bool:
        """True if the producer is a Constant layer."""
        return isinstance(self.producer.op, Constant)

    @property
    def consumers(self) -> list[Layer]:
        """The layers that use the value, each once, in order of first use."""
        return list(dict.fromkeys([layer for layer, _ in self.uses._uses]))

    @property
    def name(self) -> str:
        """The producer's name, followed by the output's number if the producer has several outputs."""
        return self.producer.name if len(self.producer.outputs) <= 1 else f"{self.producer.name}:{self.index}"

    def __repr__(self) -> str:
        return f"<Value {self.name}: {self.info if self.info is not None else 'unknown'}>"


class Inference(NamedTuple):
    """A cached result of shape inference for one layer: the infos of its outputs.

    It also has the operator and the infos of the inputs from which they were inferred, to detect when it is out of
    date.
    """

    op: Op
    inputs: tuple[TensorInfo | None, ...]
    declared: tuple[TensorInfo | None, ...]
    outputs: tuple[TensorInfo | None, ...]


class Layer:
    """An operator in a graph, with its inputs (None if an optional one is absent or not connected yet) and outputs.

    `backend` is the id of the assigned backend, `hint` the id of the backend to try first. `source` is the layer's
    origin ("net.onnx, node 'MatMul_3'"). `merged` holds the names of the layers that this layer has replaced in
    rewrites, and `replaced` returns them as a tuple. `guid` is unique within the process. `inferred` is the last
    result of shape inference.
    """

    __slots__ = (
        "_inputs", "_regions", "backend", "guid", "hint", "inferred", "merged", "name", "op", "outputs", "source",
    )  # fmt: skip
    _guids: Final = itertools.count()

    def __init__(self, op: Op, name: str, source: str = "") -> None:
        self.guid = next(self._guids)
        self.op = op
        self.name = name
        self.source = source
        self.backend: str | None = None
        self.hint: str | None = None
        self.merged = NO_NAMES
        self._regions: tuple[Graph, ...] = ()
        self._inputs: list[Value | None] = []
        self.outputs: tuple[Value, ...] = ()
        self.inferred: Inference | None = None

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """The input values by position; None for an absent input."""
        return tuple(self._inputs)

    @property
    def replaced(self) -> tuple[str, ...]:
        """The names of the layers that this layer has replaced in rewrites; empty if there are none."""
        return self.merged.flat()

    @replaced.setter
    def replaced(self, names: Iterable[str]) -> None:
        self.merged = MergedNames(names)

    @property
    def regions(self) -> tuple[Graph, ...]:
        """The subgraphs of a control flow layer; each belongs to this layer only."""
        return self._regions

    @regions.setter
    def regions(self, regions: Sequence[Graph]) -> None:
        self._regions = tuple(regions)
        for region in self._regions:
            region.owner = self

    @property
    def values(self) -> tuple[Value, ...]:
        """The input values, without absent ones."""
        inputs = self._inputs
        return tuple(inputs if None not in inputs else [value for value in inputs if value is not None])  # type: ignore[arg-type]

    def tensor_of(self, operand: str) -> str:
        """Return the name of the tensor that the layer has for an operand, or "" if there is none of this name."""
        for index, value in enumerate(self._inputs):
            if value is not None and self.op.operand_name(index) == operand:
                return value.name
        return ""

    @property
    def output(self) -> Value:
        """The only output; raises `InvalidArgumentError` if the layer does not have exactly one."""
        if len(self.outputs) != 1:
            raise InvalidArgumentError(
                f"layer {self.name!r} ({self.op.op_name()}) has {len(self.outputs)} outputs; name one"
            )
        return self.outputs[0]

    @property
    def kind(self) -> str:
        """The operator's name."""
        return self.op.op_name()

    @property
    def input_infos(self) -> tuple[TensorInfo | None, ...]:
        """The infos of the inputs, None if one is absent or unknown."""
        inputs = self._inputs
        return tuple(map(_info, inputs) if None not in inputs else [value and value.info for value in inputs])

    @property
    def output_infos(self) -> tuple[TensorInfo, ...]:
        """The infos of the outputs, all of which must be known."""
        infos = tuple(map(_info, self.outputs))
        return infos if all(infos) else tuple([value.known for value in self.outputs])

    def operand(self, name: str) -> Value | None:
        """Return the input with this name, or None if it is absent."""
        index = next((i for i, declared_operand in enumerate(self.op.operands) if declared_operand.name == name), None)
        if index is None:
            names = ", ".join(declared_operand.name for declared_operand in self.op.operands)
            raise InvalidArgumentError(f"{self.kind} has no operand {name!r}; it has {names}")
        return self._inputs[index] if index < len(self._inputs) else None

    def __str__(self) -> str:
        return f"{self.name!r} ({self.kind})"

    def __repr__(self) -> str:
        return f"<Layer {self.name!r}: {self.op!r}>"


class Graph:
    """A graph of layers and the values between them. Iteration yields the layers in the order of their addition.

    If the graph is a region of a control flow layer, `owner` is this layer, else None. `folded` holds, by name, the
    infos of small tensors of a model file that the front end has folded to constants and that no layer uses any more.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.owner: Layer | None = None
        self.folded: Mapping[str, TensorInfo] = {}
        self._layers: dict[int, Layer] = {}
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._scheduled: tuple[list[Layer], list[Layer]] | None = None
        self._frees_layers = False

    def __iter__(self) -> Iterator[Layer]:
        return iter(tuple(self._layers.values()))

    def __len__(self) -> int:
        return len(self._layers)

    def __contains__(self, layer: object) -> bool:
        return isinstance(layer, Layer) and layer.guid in self._layers

    def add(
        self,
        op: Op,
        inputs: Sequence[Value | None] = (),
        *,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] = (),
        source: str = "",
        regions: Sequence[Graph] = (),
    ) -> Layer:
        """Append a layer that runs `op` on `inputs` (None for an absent operand), and return it.

        A number is appended to a name that is not unique; without a name, the operator's is used. `outputs` are
        declared infos of the results, which inference checks. `source` is the layer's origin in a model file, for
        messages. Trailing absent inputs are dropped. The layer takes ownership of `regions`, its subgraphs if it is a
        control flow layer.

        Raises:
            InvalidArgumentError: a value of another graph, more inputs or outputs than the operator has, or an argument
                of the wrong type.
        """
        self._check_all_own(inputs)
        error = op.arity_problem(len(inputs)) if len(inputs) > len(op.operands) else None
        if error:
            raise InvalidArgumentError(error)
        count = op.num_results()
        if outputs:
            _check_declared(op, count, outputs)
        if not isinstance(name, str | None):
            raise InvalidArgumentError(f"a layer's name must be a text, not {name!r}")
        layer = Layer(op, self.free_name(name or op.op_name().lower()), source)
        declared_infos = [*outputs, *[None] * (count - len(outputs))]
        layer.outputs = tuple([Value(layer, index, info) for index, info in enumerate(declared_infos)])
        if regions:
            layer.regions = regions
        self._layers[layer.guid] = layer
        self._scheduled = None
        _connect(layer, inputs)
        return layer

    def _check_all_own(self, values: Iterable[Value | None]) -> None:
        layers = self._layers
        for value in values:
            if type(value) is not Value or value.producer.guid not in layers:
                self._check_own(value)

    def _check_own(self, value: Value | None) -> None:
        if value is None:
            return
        if not isinstance(value, Value):
            hint = "; give one of its outputs, such as layer.output" if isinstance(value, Layer) else ""
            raise InvalidArgumentError(f"an input must be a Value or None, not {value!r}{hint}")
        if value.producer not in self:
            raise InvalidArgumentError(f"the value {value.name!r} belongs to another network")

    def _check_member(self, layer: Layer) -> None:
        if type(layer) is not Layer or layer.guid not in self._layers:
            raise InvalidArgumentError(f"layer {layer} belongs to another network")

    def free_name(self, requested: str) -> str:
        """Reserve and return the name `requested`, with a number appended if another layer has this name."""
        name = requested
        while name in self._names:
            self._numbers[requested] = number = self._numbers.get(requested, 0) + 1
            name = f"{requested}_{number}"
        self._names.add(name)
        return name

    def rename(self, layer: Layer, requested: str) -> None:
        """Change a layer's name to `requested`; a number is appended if another layer has this name."""
        self._check_member(layer)
        self._names.discard(layer.name)
        layer.name = self.free_name(requested)

    def set_input(self, layer: Layer, index: int, value: Value | None) -> None:
        """Replace operand number `index` of a layer by `value`."""
        self._check_all_own((value,))
        self._check_member(layer)
        if index < 0:
            raise InvalidArgumentError(f"an operand's number must not be negative, but {index} was given")
        inputs = layer._inputs
        inputs.extend([None] * (index + 1 - len(inputs)))
        old_value = inputs[index]
        if old_value is not None:
            del old_value.uses._uses[layer, index]
        inputs[index] = value
        self._scheduled = None
        if value is not None:
            value.uses._uses[_use((layer, index))] = None

    def set_inputs(self, layer: Layer, values: Sequence[Value | None]) -> None:
        """Replace all operands of a layer by `values`, in order; None is an absent operand."""
        for index in range(len(layer._inputs)):
            self.set_input(layer, index, None)
        layer._inputs.clear()
        for index, value in enumerate(values):
            self.set_input(layer, index, value)

    def change(self, layer: Layer, op: Op, inputs: Sequence[Value | None], declared: TensorInfo | None) -> None:
        """Give a layer with one output another operator, other inputs and another declared info of the output.

        Everything about the output but its uses is forgotten. Nothing is inferred.

        Raises:
            InvalidArgumentError: as for `add`, or the layer does not have exactly one output.
        """
        self._check_member(layer)
        output = layer.output
        self._check_all_own(inputs)
        error = op.arity_problem(len(inputs)) if len(inputs) > len(op.operands) else None
        if error:
            raise InvalidArgumentError(error)
        _check_declared(op, 1, (declared,))
        for index, value in enumerate(layer._inputs):
            if value is not None:
                del value.uses._uses[layer, index]
        layer.op, layer.inferred = op, None
        output.info, output.declared, output.factory, output.aliases = None, declared, None, ()
        self._scheduled = None
        _connect(layer, inputs)

    def replace_uses(self, old: Value, new: Value, where: Callable[[Use], bool] = lambda _: True) -> None:
        """Replace `old` by `new` in every use for which `where` returns True."""
        for use in list(filter(where, old.uses)):
            self.set_input(use.layer, use.position, new)

    def erase(self, layer: Layer) -> None:
        """Remove a layer; raise `InvalidArgumentError` if one of its outputs is used.

        The layer then has no inputs, and a Constant layer no outputs either.
        """
        self._check_member(layer)
        if any([value.uses._uses for value in layer.outputs]):
            users = [str(use.layer) for value in layer.outputs for use in value.uses]
            raise InvalidArgumentError(f"layer {layer} cannot be removed; it is used by {', '.join(users)}")
        for index, value in enumerate(layer._inputs):
            if value is not None:
                del value.uses._uses[layer, index]
        layer._inputs, layer.inferred = [None] * len(layer._inputs), None
        if isinstance(layer.op, Constant):
            layer.outputs = ()  # the layer and its value would keep each other, and the array, until a collection
        del self._layers[layer.guid]
        self._scheduled = None
        self._names.discard(layer.name)

    def erase_dead(self, start: Iterable[Layer] | None = None) -> list[Layer]:
        """Remove all layers whose outputs are unused, except Input, Output and impure layers; return the removed ones.

        With `start`, only these layers are considered, and the producers of the inputs of removed layers.
        """
        removed_layers = []
        pending_layers = list(self if start is None else start)
        while pending_layers:
            layer = pending_layers.pop()
            if layer.guid not in self._layers or not _is_dead(layer):
                continue
            pending_layers += [value.producer for value in layer._inputs if value is not None]
            self.erase(layer)
            removed_layers.append(layer)
        return removed_layers

    def constant(self, value: Array, *, like: TensorInfo | None = None, name: str = "constant") -> Value:
        """Add a Constant layer for an array, and return its output.

        `like` is the info of a tensor whose quantization the constant gets, or None. `name` is the layer's name; a
        number is appended if it is not unique.
        """
        layer = self.add(Constant(value, like.quantization if like else None), name=name)
        layer.output.info = layer.op.infer_infos()[0]
        return layer.output

    @property
    def inputs(self) -> list[Layer]:
        """The Input layers that the caller fills, in order of their binding ids."""
        return [layer for layer in self.sources if not layer.op.state]  # type: ignore[attr-defined]

    @property
    def outputs(self) -> list[Layer]:
        """The Output layers that the caller reads, in order of their binding ids."""
        return [layer for layer in self.sinks if not layer.op.state]  # type: ignore[attr-defined]

    @property
    def sources(self) -> list[Layer]:
        """All Input layers, those that read states included, in order of their binding ids."""
        numbered_layers = [
            (layer.op.binding_id, layer) for layer in self._layers.values() if isinstance(layer.op, Input)
        ]
        return [layer for _, layer in sorted(numbered_layers, key=lambda pair: pair[0])]

    @property
    def sinks(self) -> list[Layer]:
        """All Output layers, those that set states included, in order of their binding ids."""
        numbered_layers = [
            (layer.op.binding_id, layer) for layer in self._layers.values() if isinstance(layer.op, Output)
        ]
        return [layer for _, layer in sorted(numbered_layers, key=lambda pair: pair[0])]

    def layer(self, name: str) -> Layer:
        """Return the layer with this name; raise `InvalidArgumentError` if there is none."""
        for layer in self._layers.values():
            if layer.name == name:
                return layer
        raise InvalidArgumentError(f"no layer is called {name!r}")

    def topological(self) -> list[Layer]:
        """Return the layers in topological order; ties are broken by the order of addition.

        Raises:
            VerificationError: the graph has a cycle.
        """
        order, stuck_layers = self.schedule()
        if stuck_layers:
            raise VerificationError([cycle_problem(stuck_layers)])
        return order

    @property
    def layers_with_regions(self) -> list[Layer]:
        """The control flow layers, in the order of their addition."""
        return [layer for layer in self._layers.values() if layer._regions]

    def schedule(self) -> tuple[list[Layer], list[Layer]]:
        """Return the layers in topological order, and the layers that are in a cycle or depend on a cycle."""
        if self._scheduled is None:
            self._scheduled = self._schedule()
        order, stuck_layers = self._scheduled
        return list(order), list(stuck_layers)

    def _schedule(self) -> tuple[list[Layer], list[Layer]]:
        if self._is_ordered():
            return list(self._layers.values()), []
        index_of_guid = {guid: index for index, guid in enumerate(self._layers)}
        unmet_counts = {
            layer.guid: len({tensor.producer.guid for tensor in layer._inputs if tensor is not None}) for layer in self
        }
        ready_indices = [index_of_guid[guid] for guid, count in unmet_counts.items() if count == 0]
        layers, order = list(self._layers.values()), []
        while ready_indices:
            layer = layers[heapq.heappop(ready_indices)]
            order.append(layer)
            for consumer in dict.fromkeys([user for value in layer.outputs for user, _ in value.uses._uses]):
                unmet_counts[consumer.guid] -= 1
                if unmet_counts[consumer.guid] == 0:
                    heapq.heappush(ready_indices, index_of_guid[consumer.guid])
        return order, [layer for layer in layers if unmet_counts[layer.guid] > 0]

    def _is_ordered(self) -> bool:
        """Return True if every layer was added after the producers of its inputs, so that this is a running order."""
        added_guids: set[int] = set()
        for layer in self._layers.values():
            for value in layer._inputs:
                if value is not None and value.producer.guid not in added_guids:
                    return False
            added_guids.add(layer.guid)
        return True

    def free_after_last_use(self) -> None:
        """Free the layers and their constants as soon as nothing refers to the graph any more.

        Layers and values refer to each other, so Python would otherwise free them only in a later garbage collection. A
        layer or value that outlives the graph then has no inputs, outputs or uses. Layers that are added after this
        call are freed too. Calling it again does nothing.
        """
        if not self._frees_layers:
            self._frees_layers = True
            weakref.finalize(self, _disconnect, self._layers).atexit = False

    def clone(self) -> Graph:
        """Return a copy of the graph; operators and constant arrays are shared, since they are immutable."""
        copy = Graph(self.name)
        copies: dict[Any, Any] = {None: None}
        names = copy._names
        for layer in self.topological():
            name = layer.name
            if name in names:
                name = copy.free_name(name)
            names.add(name)
            copy._add_copy(layer, list(map(copies.__getitem__, layer._inputs)), name, copies)
        copy.folded = self.folded
        return copy

    def restore(self, copy: Graph) -> None:
        """Give the graph the layers of a clone that was made before it was changed; the clone must not be used then."""
        self._layers.clear()  # not replaced, as `free_after_last_use` refers to it
        self._layers.update(copy._layers)
        self._names, self._numbers = copy._names, copy._numbers
        self._scheduled, self.folded = copy._scheduled, copy.folded

    def _add_copy(self, layer: Layer, inputs: list[Value | None], name: str, copies: dict[Any, Any]) -> None:
        """Append a copy of a layer of another graph with valid inputs; add its outputs to `copies`."""
        copy = Layer(layer.op, name, layer.source)
        copy_attributes(layer, copy)
        outputs = []
        for old_value in layer.outputs:
            copies[old_value] = copied_value = Value(copy, old_value.index, old_value.declared)
            copied_value.info, copied_value.factory, copied_value.aliases = (
                old_value.info,
                old_value.factory,
                old_value.aliases,
            )
            outputs.append(copied_value)
        copy.outputs, copy.inferred = tuple(outputs), layer.inferred
        self._layers[copy.guid] = copy
        self._scheduled = None
        _connect(copy, inputs)

    def __deepcopy__(self, memo: dict[int, object]) -> Graph:
        return self.clone()

    def __reduce__(self) -> tuple[Callable[..., Graph], tuple[Any, ...]]:
        from interposer.ir.stored import graph_of, parts_of  # noqa: PLC0415 - it needs this module

        return graph_of, parts_of(self)

    def absorb(self, layers: Iterable[Layer], values: Mapping[Value, Value]) -> dict[Value, Value]:
        """Append copies of `layers` (in topological order); `values` maps their external inputs to values here.

        Returns the map `values`, extended by the outputs of the copied layers.

        Raises:
            InvalidArgumentError: an input of a layer is neither in `values` nor an output of a layer before it.
        """
        copies: dict[Any, Any] = dict(values)
        for layer in layers:
            for value in layer.values:
                if value not in copies:
                    raise InvalidArgumentError(f"layer {layer} takes {value.name!r}, for which nothing stands in")
            inputs: list[Value | None] = [value and copies[value] for value in layer._inputs]
            self._check_all_own(inputs)
            self._add_copy(layer, inputs, self.free_name(layer.name), copies)
        return copies

    def __str__(self) -> str:
        from interposer.ir.printer import print_graph  # noqa: PLC0415 - the printer needs this module

        return print_graph(self, elide=32)


def _connect(layer: Layer, inputs: Sequence[Value | None]) -> None:
    """Set the inputs of a new layer, and add it to the uses of these values. Absent inputs at the end are left out."""
    connected_inputs = list(inputs)
    while connected_inputs and connected_inputs[-1] is None:
        del connected_inputs[-1]
    layer._inputs = connected_inputs
    for index, value in enumerate(connected_inputs):
        if value is not None:
            value.uses._uses[_use((layer, index))] = None


def binding_id(layer: Layer) -> int:
    """Return the binding id of an Input or Output layer, by which a run identifies its tensor."""
    op = layer.op
    assert isinstance(op, Input | Output)
    return op.binding_id


def cycle_problem(stuck: Sequence[Layer]) -> str:
    """Return an error message that names the layers in a cycle.

    `stuck` has the layers that cannot be put in topological order, as `Graph.schedule` returns them. Layers that only
    depend on a cycle are not named.
    """
    stuck_layers = set(stuck)
    uses_left = {
        layer: sum(use.layer in stuck_layers for value in layer.outputs for use in value.uses) for layer in stuck_layers
    }
    unused_layers = [layer for layer, count in uses_left.items() if count == 0]
    while unused_layers:
        layer = unused_layers.pop()
        del uses_left[layer]
        for value in layer.values:
            if value.producer in uses_left:
                uses_left[value.producer] -= 1
                unused_layers += [value.producer] if uses_left[value.producer] == 0 else []
    shown_layers, unnamed_count = [str(layer) for layer in stuck if layer in uses_left][:SHOWN], len(uses_left) - SHOWN
    more_text = f" and {unnamed_count} more" if unnamed_count > 0 else ""
    return f"these layers depend on themselves: {', '.join(shown_layers)}{more_text}"


def _check_declared(op: Op, count: int, outputs: Sequence[TensorInfo | None]) -> None:
    if len(outputs) > count:
        raise InvalidArgumentError(f"{op.op_name()} has {count} outputs, but {len(outputs)} infos were given for them")
    for info in outputs:
        if not isinstance(info, TensorInfo | None):
            raise InvalidArgumentError(f"an output is declared with a TensorInfo or None, not {info!r}")


def copy_attributes(source: Layer, target: Layer) -> None:
    """Copy backend, hint, source and the names of replaced layers from `source` to `target`, and copies of its regions.

    Operator, name and connections stay as they are.
    """
    target.backend, target.hint = source.backend, source.hint
    target.source, target.merged = source.source, source.merged
    if source._regions or target._regions:
        target.regions = tuple(region.clone() for region in source._regions)


def _disconnect(layers: Mapping[int, Layer]) -> None:
    for layer in layers.values():
        for value in layer.outputs:
            value.uses.clear()
        for region in layer._regions:
            _disconnect(region._layers)
        layer._inputs, layer.outputs, layer._regions = [], (), ()


def _is_dead(layer: Layer) -> bool:
    for value in layer.outputs:
        if value.uses._uses:
            return False
    return not isinstance(layer.op, Input | Output) and _is_pure(layer)


def _is_pure(layer: Layer) -> bool:
    is_pure = layer.op.pure
    return is_pure and (not layer._regions or all(_is_pure(inner) for region in layer._regions for inner in region))
