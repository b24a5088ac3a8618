"""What a model is made of, and the variants that become of it for shapes and values of its inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from interposer.errors import InvalidArgumentError, InvalidNetworkError, ParseError, UnboundInputError
from interposer.frontends.template import Template, Values
from interposer.ir.network import Network
from interposer.ir.optimized import OptimizedNetwork
from interposer.session.requested import known_values, with_outputs
from interposer.session.shapes import specialised
from interposer.types import Array, TensorInfo, TensorShape

__all__ = ["Blueprint", "Key", "KnownBlueprint"]

_SMALL = 1024


class Key(NamedTuple):
    """What tells one variant from another: the shapes of all inputs, and the values of some."""

    shapes: tuple[TensorShape, ...]
    values: tuple[tuple[str, Hashable], ...] = ()


class Blueprint:
    """A network, or what becomes one once the values of some inputs are known.

    `name`, `inputs` and `outputs` are its own; an output's info is None where the file says nothing of it. `needed`
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

    @property
    def source(self) -> Network | Template | KnownBlueprint:
        """What another model is made of that is to be the same."""
        found = self if isinstance(self, KnownBlueprint) else self.network or self._template
        assert found is not None
        return found

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
        self.inputs = {one.name: one.output.known for one in network.graph.inputs}
        self.outputs = {one.name: one.values[0].known for one in network.graph.outputs}
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

    def usual(self) -> tuple[Key, Network] | None:
        """A first variant, for the shapes that open inputs had where the model was made; None if there are none."""
        usual = {name: TensorShape(shape) for name, shape in self._usual.items() if not isinstance(shape, int)}
        sizes = {name: usual.get(name, info.shape) for name, info in self.inputs.items()}
        if not self._usual or self.needed or not all(shape.is_concrete for shape in sizes.values()):
            return None
        with suppress(UnboundInputError, ParseError, InvalidNetworkError):  # it may be good for other shapes
            if self.network is not None:
                return Key(tuple(sizes.values())), specialised(self.network, sizes)
            assert self._template is not None
            return Key(tuple(sizes.values())), self._template.network(sizes)
        return None

    def values(self) -> dict[str, TensorInfo]:
        """What is known of all values by name; see `known_values`.

        Raises:
            InvalidArgumentError: the network depends on its inputs, and there was no variant yet.
        """
        network = self.network or self._last
        if network is None:
            raise InvalidArgumentError(f"{self.lacking} are not known yet; run the model once, or load it with values")
        return known_values(network)

    def with_outputs(self, names: tuple[str, ...]) -> Network | Template:
        """The same with the values of these names as its outputs.

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
        """Which variant these inputs need, as far as is known."""
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
    """What is known of a network that is divided already: it is read when somebody asks for its layers."""

    def __init__(self, optimized: OptimizedNetwork, read: Callable[[], Network]) -> None:
        self.needed = ()
        self._last, self._usual = None, {}
        self._template, self._shapes = None, {}
        self.optimized, self._read = optimized, read
        self.name = optimized.name
        self.inputs = {one.name: one.output.known for one in optimized.inputs}
        self.outputs = {one.name: one.values[0].known for one in optimized.outputs}

    @cached_property
    def network(self) -> Network:  # type: ignore[override] # Blueprint sets it
        """The network, read now."""
        return self._read()


def _fingerprint(array: Array) -> Hashable:
    if array.dtype.kind == "O":
        return tuple(_fingerprint(one) if hasattr(one, "dtype") else one for one in array.reshape(-1).tolist())
    return array.tobytes() if array.nbytes <= _SMALL else hashlib.sha256(array.tobytes()).digest()
