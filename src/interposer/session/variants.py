"""What a model is made of, and the variants that become of it for shapes and values of its inputs."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from interposer.core.errors import InvalidArgumentError, InvalidNetworkError, LoadError, ParseError, UnboundInputError
from interposer.core.types import Array, TensorInfo, TensorShape
from interposer.frontends.template import Template, Values
from interposer.ir.network import Network
from interposer.report.optimized import OptimizedNetwork
from interposer.session.requested import known_values, with_outputs
from interposer.session.shapes import specialised

__all__ = ["Blueprint", "FirstVariant", "Key", "KnownBlueprint"]

_SMALL = 1024


class Key(NamedTuple):
    """What tells one variant from another: the shapes of all inputs, and the values of some."""

    shapes: tuple[TensorShape, ...]
    values: tuple[tuple[str, Hashable], ...] = ()


class FirstVariant(NamedTuple):
    """The variant that a model has before the first call: its key, and its network as read and as optimized.

    `network` reads or builds the network when it is called. `optimized` is None unless it is in the cache.
    """

    key: Key
    network: Callable[[], Network]
    optimized: OptimizedNetwork | None = None


class Blueprint:
    """A network, or what becomes one once the values of some inputs are known.

    `name`, `inputs` and `outputs` are its own; an output's info is None if the file says nothing of it. `needed`
    names the inputs whose values it depends on, as far as is known. Not safe to use from several threads.

    Raises:
        InterposerError: the front end cannot make a network of it, whatever the inputs are.
    """

    def __init__(self, source: Network | Template) -> None:
        self.network = source if isinstance(source, Network) else None
        self._template = source if isinstance(source, Template) else None
        self.needed: tuple[str, ...] = ()
        self._last: Network | None = None
        self._shapes: dict[tuple[tuple[int, ...], ...], tuple[TensorShape, ...]] = {}
        self._usual = dict(self._template.usual) if self._template is not None else {}
        if self._template is not None:
            self._try(self._template)
        if self.network is not None:
            self._take(self.network)

    def forked(self) -> Blueprint:
        """Return a blueprint of the same network for another model; what calls teach one of them stays there."""
        return copy.copy(self)

    @property
    def settled(self) -> Key | None:
        """The key of the only variant, where nothing is left open."""
        return None if self.lacking else Key(tuple(info.shape for info in self.inputs.values()))

    def _try(self, template: Template) -> None:
        self.name = template.name
        self.inputs, self.outputs = dict(template.inputs), dict(template.outputs)
        try:
            self.network = template.network()
        except UnboundInputError as error:
            self._learn(error)

    def _take(self, network: Network) -> None:
        self._template = None
        network.validate()
        self.name = network.name
        self.inputs = {item.name: item.output.known for item in network.graph.inputs}
        self.outputs = {output.name: output.values[0].known for output in network.graph.outputs}
        if self.lacking:
            self.network = Network(graph=network.graph.clone())  # what becomes of theirs is the caller's affair

    def _learn(self, error: UnboundInputError) -> None:
        self.needed = tuple(sorted({*self.needed, *error.inputs}))

    @property
    def lacking(self) -> str:
        """What must be known of the inputs before a network can be run, in words; empty where nothing must."""
        shapes = [f"{name!r} {info.shape}" for name, info in self.inputs.items() if not info.is_concrete]
        values = f"the values of {', '.join(map(repr, self.needed))}" if self.needed else ""
        return " and ".join(filter(None, [f"the shapes of {', '.join(shapes)}" if shapes else "", values]))

    @property
    def arguments(self) -> str:
        """The arguments of `load` that would give what is lacking."""
        shapes = any(not info.is_concrete for info in self.inputs.values())
        return ", ".join(filter(None, ["shapes={...}" if shapes else "", "values={...}" if self.needed else ""]))

    @property
    def usual_shapes(self) -> dict[str, TensorShape]:
        """The shapes that inputs with open dimensions had where the model was made, as far as they are known."""
        return {name: TensorShape(shape) for name, shape in self._usual.items() if not isinstance(shape, int)}

    def first(self) -> FirstVariant | None:
        """Return the variant to prepare before the first call, or None if its shapes or values are not known.

        This is the only variant if nothing is open, or else the variant for `usual_shapes`.
        """
        key, network = self.settled, self.network
        if key is not None and network is not None:
            return FirstVariant(key, lambda: network)
        return self._first_of_usual_shapes()

    def _first_of_usual_shapes(self) -> FirstVariant | None:
        usual = self.usual_shapes
        sizes = {name: usual.get(name, info.shape) for name, info in self.inputs.items()}
        if not usual or self.needed or not all(shape.is_concrete for shape in sizes.values()):
            return None
        with suppress(UnboundInputError, ParseError, InvalidNetworkError):  # the network may be valid for other shapes
            created = self._specialised(sizes)
            return FirstVariant(Key(tuple(sizes.values())), lambda: created)
        return None

    def _specialised(self, shapes: Mapping[str, TensorShape]) -> Network:
        if self.network is not None:
            return specialised(self.network, shapes)
        assert self._template is not None
        return self._template.network(shapes)

    def values(self) -> dict[str, TensorInfo]:
        """Return what is known of all values by name; see `known_values`.

        Raises:
            InvalidArgumentError: the network depends on its inputs, and there was no variant yet.
        """
        network = self.network or self._last
        first = self.first() if network is None else None
        network = network if first is None else first.network()
        if network is None:
            raise InvalidArgumentError(f"{self.lacking} are not known yet; run the model once, or load it with values")
        return known_values(network)

    def with_outputs(self, names: tuple[str, ...]) -> Network | Template:
        """Return the same with the values of these names as its outputs.

        Raises:
            BindingError: the network has no such value; of a template, only a network that it gives tells.
        """
        if self.network is not None:
            return with_outputs(self.network, names)
        template = self._template
        assert template is not None
        if self._last is not None:
            with_outputs(self._last, names)
        return replace(
            template,
            outputs=dict.fromkeys(names),
            build=lambda shapes, values: with_outputs(template.network(shapes, values), names),
        )

    def key(self, arrays: Mapping[str, Array]) -> Key:
        """Return which variant these inputs need, as far as is known."""
        raw = tuple([arrays[name].shape for name in self.inputs])
        shapes = self._shapes.get(raw)
        if shapes is None:
            shapes = tuple(map(TensorShape, raw))
            self._shapes = {raw: shapes} if len(self._shapes) > _SMALL else self._shapes | {raw: shapes}
        return Key(shapes, tuple((name, _fingerprint(arrays[name])) for name in self.needed))

    def variant(self, arrays: Mapping[str, Array]) -> Network:
        """The network for these inputs; `key` is another one afterwards where more values turned out to be needed."""
        shapes = {name: TensorShape(arrays[name].shape) for name in self.inputs}
        if self.network is not None:
            return specialised(self.network, shapes)
        assert self._template is not None
        while True:
            values: Values = {name: arrays[name] for name in self.needed}
            try:
                self._last = self._template.network(shapes, values)
                return self._last
            except UnboundInputError as error:
                if set(error.inputs) <= set(self.needed):
                    raise
                self._learn(error)


class KnownBlueprint(Blueprint):
    """What the cache knows of a network whose first variant is optimized already.

    `read` gives the blueprint that the file itself makes. It is called once, when somebody asks for layers or for
    other shapes than those of `optimized`.
    """

    def __init__(
        self,
        optimized: OptimizedNetwork,
        inputs: Mapping[str, TensorInfo],
        outputs: Mapping[str, TensorInfo | None],
        read: Callable[[], Blueprint],
    ) -> None:
        self.optimized, self._read = optimized, read
        self.name, self.inputs, self.outputs = optimized.name, dict(inputs), dict(outputs)
        self.needed = ()
        self._shapes = {}

    def forked(self) -> KnownBlueprint:
        """As `Blueprint.forked`; the file is read once for both models."""

        def read() -> Blueprint:
            return self._whole.forked()

        return KnownBlueprint(self.optimized, self.inputs, self.outputs, read)

    @cached_property
    def _whole(self) -> Blueprint:
        return self._read()

    @property
    def network(self) -> Network | None:  # type: ignore[override] # Blueprint sets it
        """The network, read now; None if the file gives another network for every shape."""
        return self._whole.network

    @property
    def usual_shapes(self) -> dict[str, TensorShape]:
        """The shapes of the variant in the cache, of the inputs with open dimensions."""
        shapes = {item.name: item.output.known.shape for item in self.optimized.inputs}
        return {name: shapes[name] for name, info in self.inputs.items() if not info.is_concrete}

    def first(self) -> FirstVariant:
        """Return the variant that is in the cache; its network is only read on demand."""
        shapes = {item.name: item.output.known.shape for item in self.optimized.inputs}
        return FirstVariant(Key(tuple(shapes[name] for name in self.inputs)), self._first_network, self.optimized)

    def _first_network(self) -> Network:
        first = self._whole.first()
        if first is None:
            raise LoadError(f"the model {self.name!r} cannot be made for the shapes that it was cached for")
        return first.network()

    def values(self) -> dict[str, TensorInfo]:
        """As `Blueprint.values`."""
        return self._whole.values()

    def with_outputs(self, names: tuple[str, ...]) -> Network | Template:
        """As `Blueprint.with_outputs`."""
        return self._whole.with_outputs(names)

    def variant(self, arrays: Mapping[str, Array]) -> Network:
        """As `Blueprint.variant`."""
        try:
            return self._whole.variant(arrays)
        finally:
            self.needed = self._whole.needed


def _fingerprint(array: Array) -> Hashable:
    if array.dtype.kind == "O":
        return tuple(_fingerprint(item) if hasattr(item, "dtype") else item for item in array.reshape(-1).tolist())
    return array.tobytes() if array.nbytes <= _SMALL else hashlib.sha256(array.tobytes()).digest()
