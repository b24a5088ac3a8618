"""The source of a model, and the variants of its network for shapes and values of the inputs."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from interposer.core.errors import (
    InterposerError,
    InvalidArgumentError,
    InvalidNetworkError,
    LoadError,
    ParseError,
    UnboundInputError,
)
from interposer.core.types import Array, TensorInfo, TensorShape
from interposer.frontends.template import Metadata, Template, Values
from interposer.ir.network import Network
from interposer.ir.states import State, states_of
from interposer.report.optimized import OptimizedNetwork
from interposer.session.requested import known_values, with_outputs
from interposer.session.shapes import specialised

__all__ = ["Blueprint", "FirstVariant", "Key", "KnownBlueprint", "fingerprint"]

_SMALL = 1024


class Key(NamedTuple):
    """What distinguishes the variants of a model: the networks that it builds for different inputs.

    `shapes` has the shapes of all inputs, and `values` the names and value hashes of the inputs whose values decide
    which layers the network has.
    """

    shapes: tuple[TensorShape, ...]
    values: tuple[tuple[str, Hashable], ...] = ()


class FirstVariant(NamedTuple):
    """The network that a model prepares when it is loaded, before the first call.

    `key` has the shapes and values of inputs that it is for. `network` reads or builds it when it is called.
    `optimized` is the optimized network if it is in the cache, else None.
    """

    key: Key
    network: Callable[[], Network]
    optimized: OptimizedNetwork | None = None


class Blueprint:
    """A network, or a template from which a network is built once the values of some inputs are known.

    `name`, `inputs` and `outputs` describe the network; the info of an output is None if the file does not declare it.
    `needed` has the names of the inputs whose values the network depends on, as far as is known. `templates` creates
    the template of each signature of the model file, and `metadata` reads its metadata (None without any). Not
    thread-safe.

    Raises:
        InterposerError: the front end cannot build a network, whatever the inputs are.
    """

    def __init__(self, source: Network | Template) -> None:
        self.network = source if isinstance(source, Network) else None
        self._template = source if isinstance(source, Template) else None
        self.templates: Mapping[str, Callable[[], Template]] = {}
        self.metadata: Callable[[], Metadata] | None = None
        self.needed: tuple[str, ...] = ()
        self._last_network: Network | None = None
        self._shapes: dict[tuple[tuple[int, ...], ...], tuple[TensorShape, ...]] = {}
        self._usual_sizes = dict(self._template.usual) if self._template is not None else {}
        if self._template is not None:
            self._try(self._template)
        if self.network is not None:
            self._take(self.network)

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about differences from the machine on which the network was saved, if it was."""
        return ()

    def known(self, key: Key) -> FirstVariant | None:
        """Return the variant with this key if it is optimized already, else None."""
        return None

    def forked(self) -> Blueprint:
        """Return a blueprint of the same network for another model; later changes of one do not affect the other."""
        return copy.copy(self)

    def free_after_last_use(self) -> None:
        """Free the networks as soon as nothing else refers to them; see `Graph.free_after_last_use`.

        Optimized networks are forgotten; they are made again on demand.
        """
        for network in (self.network, self._last_network):
            if network is not None:
                network.graph.free_after_last_use()

    @property
    def settled(self) -> Key | None:
        """The key of the network for all calls, or None if shapes or values of inputs are only known in a call."""
        return None if self.lacking else Key(tuple(info.shape for info in self.inputs.values()))

    def _try(self, template: Template) -> None:
        self.name = template.name
        self.inputs, self.outputs = dict(template.inputs), dict(template.outputs)
        self.templates, self.metadata = template.signatures, template.metadata
        try:
            self.network = template.network()
        except UnboundInputError as error:
            self._learn(error)

    def _take(self, network: Network) -> None:
        self._template = None
        network.validate()
        self.name = network.name
        self.inputs = {layer.name: layer.output.known for layer in network.graph.inputs}
        self.outputs = {output.name: output.values[0].known for output in network.graph.outputs}
        if self.lacking:
            network.graph.free_after_last_use()
            self.network = Network(graph=network.graph.clone())  # the caller may change the original later

    def _learn(self, error: UnboundInputError) -> None:
        self.needed = tuple(sorted({*self.needed, *error.inputs}))

    @property
    def lacking(self) -> str:
        """A description of the shapes and values that a run needs and that are not known; empty if there are none."""
        shapes = [f"{name!r} {info.shape}" for name, info in self.inputs.items() if not info.is_concrete]
        values = f"the values of {', '.join(map(repr, self.needed))}" if self.needed else ""
        return " and ".join(filter(None, [f"the shapes of {', '.join(shapes)}" if shapes else "", values]))

    @property
    def arguments(self) -> str:
        """The arguments of `load` that would supply the missing shapes and values, for messages."""
        shapes = any(not info.is_concrete for info in self.inputs.values())
        return ", ".join(filter(None, ["shapes={...}" if shapes else "", "values={...}" if self.needed else ""]))

    @property
    def usual_shapes(self) -> dict[str, TensorShape]:
        """The example shapes that the model file has for inputs with open dimensions, by name."""
        return {name: TensorShape(shape) for name, shape in self._usual_sizes.items() if not isinstance(shape, int)}

    def first(self) -> FirstVariant | None:
        """Return the network to prepare before the first call, or None if shapes or values for it are not known.

        This is the network for all calls if all shapes and values are known, else the one for `usual_shapes`.
        """
        key, network = self.settled, self.network
        if key is not None and network is not None:
            return FirstVariant(key, lambda: network)
        return self._first_of_usual_shapes()

    def _first_of_usual_shapes(self) -> FirstVariant | None:
        usual_shapes = self.usual_shapes
        shapes = {name: usual_shapes.get(name, info.shape) for name, info in self.inputs.items()}
        if not usual_shapes or self.needed or not all(shape.is_concrete for shape in shapes.values()):
            return None
        with suppress(UnboundInputError, ParseError, InvalidNetworkError):  # the network may be valid for other shapes
            network = self._specialised(shapes)
            return FirstVariant(Key(tuple(shapes.values())), lambda: network)
        return None

    def _specialised(self, shapes: Mapping[str, TensorShape]) -> Network:
        if self.network is not None:
            return specialised(self.network, shapes)
        assert self._template is not None
        return self._template.network(shapes)

    def values(self) -> dict[str, TensorInfo]:
        """Return the infos of all values that a run can return, by name; see `known_values`.

        Raises:
            InvalidArgumentError: the network depends on its inputs, and no variant has been built yet.
        """
        network = self.network or self._last_network
        first = self.first() if network is None else None
        network = network if first is None else first.network()
        if network is None:
            raise InvalidArgumentError(f"{self.lacking} are not known yet; run the model once, or load it with values")
        return known_values(network)

    def states(self) -> list[State] | None:
        """Return the states of the network, which are the same for all shapes; None if they are not known yet."""
        network, template = self.network or self._last_network, self._template
        if network is None and template is not None and not template.has_states:
            return []
        network = self._example if network is None else network
        return None if network is None else states_of(network.graph)

    @cached_property
    def _example(self) -> Network | None:
        """The network for some shapes that the model allows; None if none can be built."""
        if self._template is not None and self._template.example is not None:
            with suppress(InterposerError):
                return self._template.example()
        return None

    def with_outputs(self, names: tuple[str, ...]) -> Network | Template:
        """Return the network, or its template, with the values of these names as its only outputs.

        Raises:
            BindingError: the network has no such value. For a template this is only known once a network has been
                built.
        """
        if self.network is not None:
            return with_outputs(self.network, names)
        template = self._template
        assert template is not None
        if self._last_network is not None:
            with_outputs(self._last_network, names)
        return replace(
            template,
            outputs=dict.fromkeys(names),
            build=lambda shapes, values: with_outputs(template.network(shapes, values), names),
        )

    def key(self, arrays: Mapping[str, Array]) -> Key:
        """Return the key of the network for these inputs, which are arrays by name.

        It has the shapes of all inputs, and the values of those in `needed`.
        """
        sizes = tuple([arrays[name].shape for name in self.inputs])
        shapes = self._shapes.get(sizes)
        if shapes is None:
            shapes = tuple(map(TensorShape, sizes))
            self._shapes = {sizes: shapes} if len(self._shapes) > _SMALL else self._shapes | {sizes: shapes}
        return Key(shapes, tuple((name, fingerprint(arrays[name])) for name in self.needed))

    def variant(self, arrays: Mapping[str, Array]) -> Network:
        """Return the network specialised for these inputs, which are arrays by name.

        If the network turns out to depend on the values of more inputs, these are added to `needed`, so `key` must be
        called again afterwards.
        """
        shapes = {name: TensorShape(arrays[name].shape) for name in self.inputs}
        if self.network is not None:
            return specialised(self.network, shapes)
        assert self._template is not None
        while True:
            values: Values = {name: arrays[name] for name in self.needed}
            try:
                self._last_network = self._template.network(shapes, values)
                return self._last_network
            except UnboundInputError as error:
                if set(error.inputs) <= set(self.needed):
                    raise
                self._learn(error)


class LaterBlueprint(Blueprint):
    """A blueprint with optimized networks; that of the network before it was optimized is read on first use.

    A subclass sets the attributes of `Blueprint` that describe the network, and `_read` reads the other blueprint.
    """

    def _read(self) -> Blueprint:
        """Return the blueprint of the network before it was optimized; it is called once."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Drop all references to optimized networks."""
        raise NotImplementedError

    @cached_property
    def _whole(self) -> Blueprint:
        return self._read()

    def free_after_last_use(self) -> None:
        """Free the networks as soon as nothing else refers to them; see `Blueprint.free_after_last_use`."""
        self._forget()
        if "_whole" in self.__dict__:
            self._whole.free_after_last_use()

    @property
    def network(self) -> Network | None:  # type: ignore[override] # Blueprint sets it
        """The network before it was optimized; None if its layers depend on values of inputs."""
        return self._whole.network

    @property
    def templates(self) -> Mapping[str, Callable[[], Template]]:  # type: ignore[override] # Blueprint sets it
        """Functions that create the template of each signature of the file, which is read for them."""
        return self._whole.templates

    @property
    def metadata(self) -> Callable[[], Metadata] | None:  # type: ignore[override] # Blueprint sets it
        """The function that reads the metadata of the model file; None if there is none."""
        return self._whole.metadata

    def states(self) -> list[State] | None:
        """Return the states of the network before it was optimized; see `Blueprint.states`."""
        return self._whole.states()

    def values(self) -> dict[str, TensorInfo]:
        """Return the infos of all values by name; see `Blueprint.values`."""
        return self._whole.values()

    def with_outputs(self, names: tuple[str, ...]) -> Network | Template:
        """Return the network, or its template, with the values of these names as its only outputs.

        The file is read for this; see `Blueprint.with_outputs`.
        """
        return self._whole.with_outputs(names)

    def variant(self, arrays: Mapping[str, Array]) -> Network:
        """Return the network specialised for these inputs, which are arrays by name; the file is read for it."""
        return self._whole.variant(arrays)


class KnownBlueprint(LaterBlueprint):
    """A blueprint of a model file whose first network is in the network cache, optimized already.

    `read` returns the blueprint of the file itself. It is called once, when layers or shapes are requested that
    `optimized` does not have.
    """

    def __init__(
        self,
        optimized: OptimizedNetwork,
        inputs: Mapping[str, TensorInfo],
        outputs: Mapping[str, TensorInfo | None],
        read: Callable[[], Blueprint],
    ) -> None:
        self.optimized: OptimizedNetwork | None = optimized
        self.name, self.inputs, self.outputs = optimized.name, dict(inputs), dict(outputs)
        self._first_shapes = {layer.name: layer.output.known.shape for layer in optimized.inputs}
        self._read_file = read
        self.needed = ()
        self._shapes = {}

    def forked(self) -> KnownBlueprint:
        """Return a blueprint of the same network for another model; the file is read once for both."""
        assert self.optimized is not None, "the model is closed"

        def read() -> Blueprint:
            return self._whole.forked()

        return KnownBlueprint(self.optimized, self.inputs, self.outputs, read)

    def _read(self) -> Blueprint:
        return self._read_file()

    def _forget(self) -> None:
        self.optimized = None

    @property
    def usual_shapes(self) -> dict[str, TensorShape]:
        """The shapes, by name, that inputs with open dimensions have in the cached network."""
        return {name: self._first_shapes[name] for name, info in self.inputs.items() if not info.is_concrete}

    def first(self) -> FirstVariant:
        """Return the cached network as the one to prepare; its layers are read from the file only on demand."""
        shapes = tuple(self._first_shapes[name] for name in self.inputs)
        return FirstVariant(Key(shapes), self._first_network, self.optimized)

    def _first_network(self) -> Network:
        first = self._whole.first()
        if first is None:
            raise LoadError(f"the model {self.name!r} cannot be made for the shapes that it was cached for")
        return first.network()

    def variant(self, arrays: Mapping[str, Array]) -> Network:
        """Return the network specialised for these inputs; see `Blueprint.variant`."""
        try:
            return super().variant(arrays)
        finally:
            self.needed = self._whole.needed


def fingerprint(array: Array) -> Hashable:
    """Return a hashable value that is equal for equal arrays: their bytes or texts, or the digest of many bytes."""
    if array.dtype.kind == "O":
        return tuple(
            fingerprint(element) if hasattr(element, "dtype") else element for element in array.reshape(-1).tolist()
        )
    return array.tobytes() if array.nbytes <= _SMALL else hashlib.sha256(array.tobytes()).digest()
