"""The kinds of memory that the backends of a network provide, and which of them each backend accepts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from interposer.backend import (
    DEFAULT_FACTORY,
    ArenaMemoryManager,
    ArrayHandleFactory,
    Backend,
    MemorySource,
    Options,
    TensorHandleFactoryRegistry,
    own_factory_id,
)
from interposer.core.errors import BackendContractError, error_text
from interposer.core.records import dataclass
from interposer.ir.graph import Layer
from interposer.optimizer.routes import Kind

__all__ = ["Offers"]

_ALWAYS_COPIED = ("PaddingRequired", "FallbackImportDisabled")
"""Capabilities of a tensor that can neither be imported nor exported."""


@dataclass(frozen=True)
class Offers:
    """The kinds of memory between which the optimizer chooses for each tensor; one kind per tensor handle factory.

    `kinds` has all kinds by id. `preferences` has, for each backend with layers, the ids of the kinds that it accepts,
    best first. `registry` has the factories.
    """

    kinds: Mapping[str, Kind]
    preferences: Mapping[str, tuple[str, ...]]
    registry: TensorHandleFactoryRegistry
    asked: bool
    """True if some factory answers `capabilities` for single layers."""

    @classmethod
    def of(cls, backends: Iterable[Backend], used: Collection[str], options: Mapping[str, Options]) -> Offers:
        """Ask the backends which kinds of memory they have, and which kinds they accept.

        `used` has the ids of the backends that have layers; only these have preferences. `options` are the model
        options by backend id.

        Raises:
            BackendContractError: a backend's factories or preferences are invalid.
        """
        registry = TensorHandleFactoryRegistry()
        registry.register_factory(ArrayHandleFactory())
        backends = tuple(backends)
        for backend in backends:
            _register(backend, registry, options.get(backend.id, {}))
        kinds = {factory.id: Kind.of(factory) for factory in registry}
        preferences = {}
        for backend in backends:
            if backend.id in used:
                is_alone = len(used) == 1
                preferences[backend.id] = _preferences(backend, registry, kinds, options.get(backend.id, {}), is_alone)
        all_inherit = all(type(factory).capabilities is ArrayHandleFactory.capabilities for factory in registry)
        return cls(kinds, preferences, registry, not all_inherit)

    def restricted(self, *, imports: bool, exports: bool) -> Offers:
        """Return the same kinds of memory; without `imports` or `exports`, none of them imports or exports memory."""
        if imports and exports:
            return self
        no_source = MemorySource.UNDEFINED
        restricted_kinds = {
            name: replace(
                kind, imports=kind.imports if imports else no_source, exports=kind.exports if exports else no_source
            )
            for name, kind in self.kinds.items()
        }
        return replace(self, kinds=restricted_kinds)

    def at_the_border(self, backend: str) -> dict[str, int]:
        """Return the kinds of memory that a backend accepts for inputs and outputs of the network, by id with rank.

        Rank 0 is the best. Kinds that can use the caller's memory have the rank of the kind that they may replace.
        """
        ranks = self.ranks(backend)
        for rank in tuple(ranks):
            paired_id = self.registry.matching_import_factory(rank)
            if paired_id is not None:
                ranks.setdefault(paired_id, ranks[rank])
        return ranks

    def ranks(self, backend: str) -> dict[str, int]:
        """Return the kinds of memory that a backend accepts, by id with their rank; 0 is the best."""
        return {preference: rank for rank, preference in enumerate(self.preferences[backend])}

    def padded(self, layer: Layer, consumers: Iterable[Layer]) -> frozenset[str]:
        """Return the ids of the kinds of memory that do not share a tensor that `layer` passes to these consumers.

        Such a tensor can neither be imported nor exported, for example because its rows are padded.
        """
        if not self.asked:
            return frozenset()
        consumers = tuple(consumers)
        return frozenset(
            factory.id
            for factory in self.registry
            for connected in consumers
            if any(factory.capabilities(layer, connected).has(name) for name in _ALWAYS_COPIED)
        )

    def described(self, backend: str) -> str:
        """Return the kinds of memory that a backend accepts as text for error messages."""
        return "; ".join(str(self.kinds[kind_id]) for kind_id in self.preferences[backend])


def _register(backend: Backend, registry: TensorHandleFactoryRegistry, options: Options) -> None:
    try:
        backend.register_tensor_handle_factories(registry, options)
    except Exception as error:
        message = error_text(error)
        text = f"backend {backend.id} could not register its tensor handle factories: {message}"
        raise BackendContractError(text, backend=backend.id) from error


def _preferences(
    backend: Backend, registry: TensorHandleFactoryRegistry, kinds: dict[str, Kind], options: Options, is_alone: bool
) -> tuple[str, ...]:
    try:
        preferred_ids = backend.handle_factory_preferences
    except Exception as error:
        message = f"backend {backend.id} could not name its tensor handle factories: {type(error).__name__}: {error}"
        raise BackendContractError(message, backend=backend.id) from error
    if isinstance(preferred_ids, str) or not all(isinstance(factory_id, str) for factory_id in preferred_ids):
        message = (
            f"backend {backend.id} prefers tensor handle factories {preferred_ids!r}; expected a tuple of their ids"
        )
        raise BackendContractError(message, backend=backend.id)
    registered_ids = tuple(dict.fromkeys(factory_id for factory_id in preferred_ids if factory_id in registry))
    if preferred_ids and not registered_ids:
        message = (
            f"backend {backend.id} takes only tensors of the handle factories {', '.join(preferred_ids)}, and none of "
            f"them is registered (registered: {', '.join(factory.id for factory in registry)})"
        )
        raise BackendContractError(message, backend=backend.id)
    return registered_ids or (_default_kind(backend, kinds, options, is_alone),)


def _default_kind(backend: Backend, kinds: dict[str, Kind], options: Options, is_alone: bool) -> str:
    """Return the id of the kind of memory of a backend that names no preferences.

    This is ordinary memory (`DEFAULT_FACTORY`) for a backend with the default memory manager, if no other backend has
    layers (`is_alone`) or its workload factory makes plain arrays. Otherwise its handles become a new kind in `kinds`.
    """
    if type(backend).create_memory_manager is Backend.create_memory_manager:
        overrides_factory = type(backend).create_workload_factory is not Backend.create_workload_factory
        if not overrides_factory or is_alone or _makes_arrays(backend, options):
            return DEFAULT_FACTORY
    own_id = own_factory_id(backend.id)
    kinds[own_id] = Kind(own_id)
    return own_id


def _makes_arrays(backend: Backend, options: Options) -> bool:
    """Return True if the backend's workload factory, created with these options, makes plain array handles."""
    try:
        factory = backend.create_workload_factory(ArenaMemoryManager(), options)
    except Exception:  # the error is reported when the network is loaded
        return False
    return bool(getattr(factory, "makes_arrays", False))
