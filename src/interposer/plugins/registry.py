"""`BackendRegistry`: registration of backends by code, and discovery by entry points."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, Final

from interposer._distribution import DISTRIBUTION
from interposer.backend.base import Backend, BackendId
from interposer.backend.contracts import backend_problem
from interposer.backend.devices import Device, split_address
from interposer.backend.events import QUARANTINED, BackendEvent
from interposer.backend.strategies import MemoryOptimizerStrategy, chosen_strategy
from interposer.core.entry_points import EntryPoint, entry_points
from interposer.core.errors import (
    BackendError,
    BackendUnavailableError,
    DuplicateBackendError,
    InterposerError,
    InvalidArgumentError,
    OptionError,
    UnknownBackendError,
    expect,
)
from interposer.core.records import dataclass
from interposer.isolation import Isolation, end_process, isolated_backend

__all__ = ["ENTRY_POINTS", "BackendRecord", "BackendRegistry", "making", "process_registry"]

ENTRY_POINTS: Final = "interposer.backends"
"""The entry-point group under which packages name their backends: ``Id = "package.module:BackendClass"``."""

_ENGINES: Final = "interposer.backends.engines."
"""The package of this project's backends that are only used if they are named, so that others need not import it."""

EVENTS: Final = 1000
"""The number of events that a registry keeps; the oldest are dropped first."""

Factory = Callable[[], Backend]
_log = logging.getLogger("interposer.backend")
making = threading.RLock()
"""The lock that is held while a registry of the whole process is created."""


@dataclass(frozen=True, slots=True)
class BackendRecord:
    """The description of one backend: whether it is available, the reason if not, and where it comes from.

    `devices` are those that users can choose from.
    """

    id: str
    available: bool
    source: str
    reason: str = ""
    version: str = ""
    capabilities: tuple[tuple[str, Any], ...] = ()
    devices: tuple[Device, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-compatible data."""
        return {
            "id": self.id,
            "available": self.available,
            "source": self.source,
            "reason": self.reason,
            "version": self.version,
            "capabilities": dict(self.capabilities),
        } | ({"devices": [device.to_dict() for device in self.devices]} if self.devices else {})


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    load: Callable[[], Factory]
    source: str
    recipe: Callable[[], object] | None = None
    """The picklable factory that creates the backend in another process, or a value whose pickling explains why not."""
    by_name_only: bool = False
    """True if the backend is known to have the capability ``OnlyByName`` before it is created."""


class BackendRegistry:
    """The backends that are known by id. A registry with a parent also has the backends of the parent.

    Backends are created on demand, one instance per registry. A backend that fails to be created or is unavailable
    stays unavailable in that registry. Backends in `isolate` run in child processes; their crashes and restarts are
    recorded in `events`. Thread-safe.
    """

    def __init__(
        self,
        parent: BackendRegistry | None = None,
        disabled: Iterable[str] = (),
        isolate: Mapping[str, Isolation] | None = None,
    ) -> None:
        self._parent = parent
        self._disabled = frozenset(disabled)
        self._allowed_only: tuple[frozenset[str], str] | None = None
        self._isolate = dict(isolate or {})
        self.events: deque[BackendEvent] = deque(maxlen=EVENTS)
        self._entries: dict[str, _Entry] = {}
        self._devices: dict[str, _Entry] = {}
        self._instances: dict[_Entry, Backend | str] = {}  # the backend, or the reason why it cannot be used
        self._refused_records: list[BackendRecord] = []
        self._in_place: set[str] = set()
        self._strategies: dict[str, MemoryOptimizerStrategy] = {}
        self._lock = threading.RLock()

    def register(
        self,
        backend_id: str,
        factory: Factory,
        *,
        source: str = "registered by code",
        in_place: bool = False,
        by_name_only: bool = False,
    ) -> None:
        """Register a backend, which is created by ``factory()`` on first use.

        If the id belongs to a backend of the parent registry and is disabled here, the new backend replaces that one.
        With `in_place`, the new backend can be used although its id is disabled. With `by_name_only`, the backend is
        not created to find out that it has the capability ``OnlyByName``.

        Raises:
            DuplicateBackendError: the id is taken; the message names the source of the registered backend.
            InvalidArgumentError: the id is not valid, or the factory is not callable.
        """
        if not callable(factory):
            raise InvalidArgumentError(f"register needs a Backend class or a function that makes one, not {factory!r}")
        self._add(BackendId(backend_id), _Entry(lambda: factory, source, factory, by_name_only))
        if in_place:
            self._in_place.add(backend_id)

    def register_absent(self, backend_id: str, reason: str, *, source: str) -> None:
        """Register an id without a backend; requests for it raise `BackendUnavailableError` with the reason.

        `source` says where the backend would come from, such as a file, for lists of backends.

        Raises:
            DuplicateBackendError: the id is taken.
            InvalidArgumentError: the id is not valid.
        """

        def absent() -> Factory:
            raise BackendUnavailableError(backend_id, reason)

        self._add(BackendId(backend_id), _Entry(absent, source))

    def _add(self, backend_id: BackendId, entry: _Entry) -> None:
        with self._lock:
            existing_entry = self._entry_of_taken_id(backend_id)
            if existing_entry is not None:
                raise DuplicateBackendError(
                    f"backend {backend_id!r} ({entry.source}) is refused: the id is taken ({existing_entry.source})",
                    backend=backend_id,
                )
            self._entries[backend_id] = entry

    def deregister(self, backend_id: str) -> None:
        """Remove a backend that was registered here; raise `UnknownBackendError` if it was not."""
        with self._lock:
            if backend_id not in self._entries:
                raise UnknownBackendError(backend_id, self._entries)
            instance = self._instances.pop(self._entries.pop(backend_id), None)
            self._in_place.discard(backend_id)
        if isinstance(instance, Backend):
            end_process(instance)

    def _entry(self, backend_id: str) -> _Entry | None:
        """Return the entry of a backend, or of one of its devices; None if there is none."""
        entry = self._own_entry(backend_id)
        return self._device_entry(backend_id) if entry is None else entry

    def _device_entry(self, address: str) -> _Entry | None:
        """Return the entry of a device, or None if its backend is not known; the device itself need not exist."""
        id_and_device = split_address(address)
        base = None if id_and_device is None else self._own_entry(id_and_device[0])
        if id_and_device is None or base is None:
            return None
        if address not in self._devices:
            backend_id, device = id_and_device
            recipe = None if base.recipe is None else partial(_device_of, base.recipe, address, device)
            make = partial(self._on_device, backend_id, address, device)
            self._devices[address] = _Entry(lambda: make, f"device {device} of {base.source}", recipe)
        return self._devices[address]

    def _on_device(self, backend_id: str, address: str, device: str) -> Backend:
        """Return the backend of a device; raise `BackendUnavailableError` if its backend cannot be used."""
        entry = self._own_entry(backend_id)
        assert entry is not None
        if entry not in self._instances:
            self._instances[entry] = _create(backend_id, self._isolated_entry(backend_id, entry))
        backend_or_reason = self._instances[entry]
        if isinstance(backend_or_reason, str):
            raise BackendUnavailableError(address, backend_or_reason)
        return backend_or_reason.named_device(device, address)

    def _own_entry(self, backend_id: str) -> _Entry | None:
        entry = self._entries.get(backend_id)
        return entry if entry is not None or self._parent is None else self._parent._own_entry(backend_id)

    def _entry_of_taken_id(self, backend_id: str) -> _Entry | None:
        if backend_id in self._entries or not self._is_disabled(backend_id):
            return self._own_entry(backend_id)
        return None

    def taken_by(self, backend_id: str) -> str | None:
        """Return the source of the backend that has this id, or None if the id is free for registration."""
        entry = self._entry_of_taken_id(backend_id)
        return None if entry is None else entry.source

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, available or not: those of the parent first, then in order of registration."""
        parent_ids = self._parent.ids if self._parent is not None else ()
        return tuple(dict.fromkeys((*parent_ids, *self._entries)))

    def is_registered(self, backend_id: str) -> bool:
        """Return True if the id is known, available or not. The address of a device is, unless its backend lacks it."""
        if self._own_entry(backend_id) is not None:
            return True
        id_and_device = split_address(backend_id)
        if id_and_device is None or self._own_entry(id_and_device[0]) is None:
            return False
        try:
            self.get(backend_id)
        except UnknownBackendError:
            return False
        except BackendUnavailableError:
            return True
        return True

    def __contains__(self, backend_id: object) -> bool:
        return isinstance(backend_id, str) and self.is_registered(backend_id)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def reason_absent(self, backend_id: str) -> str | None:
        """Return why a known backend cannot be used here, or None if it can.

        Raises:
            UnknownBackendError: the id is not registered.
        """
        try:
            self.get(backend_id)
        except BackendUnavailableError as error:
            return error.reason
        return None

    def is_available(self, backend_id: str) -> bool:
        """Return True if a backend is known and can be used here; no other backend is created to find out."""
        return backend_id in self and self.reason_absent(backend_id) is None

    def get(self, backend_id: str) -> Backend:
        """Return the backend with this id, or that of a device: ``"Npu:1"`` by its index, or ``"Npu:"`` with its id.

        Raises:
            UnknownBackendError: the id is not registered, or the backend has no such device.
            BackendUnavailableError: the backend is disabled or broken, or a requirement of it is missing.
            OptionError: the runtime has an option for it that it does not declare, or a value of the wrong type.
        """
        expect(backend_id, str, "a backend is named by its id, such as 'CpuRef'")
        with self._lock:
            entry = self._entry(backend_id)
            if entry is None:
                raise UnknownBackendError(backend_id, self.ids)
            if self._is_disabled(backend_id):
                raise BackendUnavailableError(backend_id, "it is disabled")
            if self._allowed_only is not None and self._allowed_only[0].isdisjoint(_with_base(backend_id)):
                raise BackendUnavailableError(backend_id, self._allowed_only[1])
            if entry not in self._instances:
                self._instances[entry] = _create(backend_id, self._isolated_entry(backend_id, entry))
            backend_or_reason = self._instances[entry]
            if isinstance(backend_or_reason, str):
                raise BackendUnavailableError(backend_id, backend_or_reason)
            return backend_or_reason

    def register_memory_strategy(self, backend_id: str, strategy: MemoryOptimizerStrategy | str) -> None:
        """Let a strategy pack the tensors of a backend in all networks that are loaded from now on.

        A later strategy replaces an earlier one, also one of the parent registry. A name is that of a strategy in
        `interposer.backend.MEMORY_STRATEGIES`.

        Raises:
            UnknownBackendError: the id is not registered.
            BackendUnavailableError: the backend cannot be used here.
            BackendError: the backend does not use the strategy; the message has the reason.
            InvalidArgumentError: the strategy is not a `MemoryOptimizerStrategy`, or its name is unknown.
        """
        chosen = chosen_strategy(backend_id, strategy)
        reason = self.get(backend_id).use_memory_strategy(chosen)
        if reason is not None:
            message = f"backend {backend_id} does not use the memory strategy {chosen.name!r}: {reason}"
            raise BackendError(message, backend=backend_id)
        self._strategies[backend_id] = chosen

    @property
    def memory_strategies(self) -> dict[str, MemoryOptimizerStrategy]:
        """The memory strategies by backend id, those of the parent registry included."""
        inherited_strategies = self._parent.memory_strategies if self._parent is not None else {}
        return {**inherited_strategies, **self._strategies}

    def restrict(self, backends: Collection[str], reason: str) -> None:
        """Disable all other backends, including those registered later; `reason` is the message for them."""
        self._allowed_only = frozenset(backends), reason

    def _is_disabled(self, backend_id: str) -> bool:
        return any(map(self._is_disabled_itself, _with_base(backend_id)))

    def _is_disabled_itself(self, backend_id: str) -> bool:
        in_parent = self._parent is not None and self._parent.is_registered(backend_id)
        if backend_id in self._in_place or (in_parent and backend_id in self._entries):
            return False  # it replaces the disabled backend
        return backend_id in self._disabled or (
            self._parent is not None and self._parent._is_disabled_itself(backend_id)
        )

    def isolation(self, backend_id: str) -> Isolation | None:
        """Return how a backend is isolated, or None if it runs in this process; its devices are isolated likewise."""
        inherited_settings = self._parent.isolation(backend_id) if self._parent is not None else None
        own_settings = next((self._isolate[name] for name in _with_base(backend_id) if name in self._isolate), None)
        return inherited_settings if own_settings is None else own_settings

    @property
    def isolates_any(self) -> bool:
        """True if some backends run in child processes."""
        return bool(self._isolate) or (self._parent is not None and self._parent.isolates_any)

    def _isolated_entry(self, backend_id: str, entry: _Entry) -> _Entry:
        isolation = self.isolation(backend_id)
        if isolation is None or entry.recipe is None:
            return entry
        factory = partial(isolated_backend, backend_id, entry.recipe, isolation, partial(self._record_event, entry))
        return _Entry(lambda: factory, entry.source)

    def record(self, event: BackendEvent) -> None:
        """Record an event of a backend; `events` keeps the last thousand."""
        self.events.append(event)

    def _record_event(self, entry: _Entry, event: BackendEvent) -> None:
        self.record(event)
        if event.kind == QUARANTINED:
            self._instances[entry] = event.text

    def close(self) -> None:
        """End the child processes of the backends of this registry; a backend that is used later starts again."""
        for entry, backend in tuple(self._instances.items()):
            if isinstance(backend, Backend) and entry.recipe is not None:
                end_process(backend)

    def available(self) -> tuple[str, ...]:
        """Return the ids of the backends that can be used here, CpuRef last."""
        return tuple(self._usable(self.ids))

    def _usable(self, ids: Iterable[str]) -> dict[str, Backend]:
        """Return those of some backends that can be used here by id, CpuRef last."""
        backends = {}
        for backend_id in sorted(ids, key="CpuRef".__eq__):
            with suppress(BackendUnavailableError):
                backends[backend_id] = self.get(backend_id)
        return backends

    def by_default(self) -> tuple[str, ...]:
        """Return the available ids that are used if no backend is named."""
        candidates = (name for name in self.ids if not self.is_by_name_only(name))
        backends = self._usable(candidates)
        return tuple([name for name, backend in backends.items() if not backend.capabilities.has("OnlyByName")])

    def is_by_name_only(self, backend_id: str) -> bool:
        """Return True if a backend is registered as one that is only created if it is named."""
        entry = self._own_entry(backend_id)
        return entry is not None and entry.by_name_only

    def records(self) -> list[BackendRecord]:
        """Return one record for each known backend, available or not, and for each one that discovery rejected."""
        return [*(self._record(backend_id) for backend_id in self.ids), *self._all_refused()]

    def _all_refused(self) -> list[BackendRecord]:
        inherited_refusals = self._parent._all_refused() if self._parent is not None else []
        return [*inherited_refusals, *self._refused_records]

    def _record(self, backend_id: str) -> BackendRecord:
        entry = self._entry(backend_id)
        source = entry.source if entry is not None else ""
        try:
            backend = self.get(backend_id)
        except BackendUnavailableError as error:
            return BackendRecord(backend_id, False, source, error.reason)
        capabilities = tuple(backend.capabilities.to_dict().items())
        return BackendRecord(backend_id, True, source, "", backend.version, capabilities, _devices_of(backend))

    def discover(self) -> None:
        """Register the backends that installed packages name in their entry points.

        This package comes first, the others in alphabetical order. Invalid entries are logged and recorded.
        """
        for package, point in entry_points(ENTRY_POINTS):
            source = f"entry point of {package}"
            try:
                recipe = partial(_from_entry_point, point.value)
                by_name_only = package == DISTRIBUTION and point.module.startswith(_ENGINES)
                self._add(BackendId(point.name), _Entry(point.load, source, recipe, by_name_only))
            except InterposerError as error:
                self._refused_records.append(BackendRecord(point.name, False, source, str(error)))
                _log.warning("entry point %r of %s is skipped: %s", point.name, package, error)


def _devices_of(backend: Backend) -> tuple[Device, ...]:
    """Return the devices of a backend; none if it fails to list them, which is logged."""
    try:
        return tuple(backend.devices())
    except Exception as error:
        _log.warning("backend %s could not list its devices: %s: %s", backend.id, type(error).__name__, error)
        return ()


def _with_base(backend_id: str) -> tuple[str, ...]:
    """Return the id, and for the address of a device also the id of its backend."""
    id_and_device = split_address(backend_id)
    return (backend_id,) if id_and_device is None else (backend_id, id_and_device[0])


def _device_of(recipe: Callable[[], Any], address: str, device: str) -> Backend:
    """Create a backend by a recipe, and return that of a device; called in another process."""
    backend: Backend = recipe()
    return backend.named_device(device, address)


def _from_entry_point(value: str) -> object:
    return EntryPoint(name="", value=value, group=ENTRY_POINTS).load()()


def _create(backend_id: str, entry: _Entry) -> Backend | str:
    level = logging.WARNING
    try:
        backend = entry.load()()
        reason = backend_problem(backend_id, backend)
        if reason is None:
            reason, level = backend.unavailable(), logging.INFO
    except BackendUnavailableError as error:
        reason, level = error.reason, logging.INFO
    except (OptionError, UnknownBackendError):  # an error of the caller, not of the backend
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
    if reason is None:
        return backend
    if not isinstance(reason, str):
        reason = f"unavailable() gave {reason!r}; expected a reason, or None if the backend works"
        level = logging.WARNING
    _log.log(level, "backend %s (%s) is not available: %s", backend_id, entry.source, reason)
    return reason


def process_registry() -> BackendRegistry:
    """Return the registry of the process, with the backends of entry points; it is created on first use."""
    with making:
        return _discovered()


@cache
def _discovered() -> BackendRegistry:
    registry = BackendRegistry()
    registry.discover()
    return registry
